#!/usr/bin/env python3
"""validate.py SCHEMA FILE: is the file valid by the schema? By python3-jsonschema."""

import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as f:
    schema = json.load(f)
with open(sys.argv[2], encoding="utf-8") as f:
    document = json.load(f)
validator = jsonschema.validators.validator_for(schema)
validator.check_schema(schema)
errors = sorted(validator(schema).iter_errors(document), key=str)
for error in errors:
    print(f"{sys.argv[2]}: {error.json_path}: {error.message}", file=sys.stderr)
sys.exit(1 if errors else 0)
