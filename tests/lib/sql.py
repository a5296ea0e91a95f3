#!/usr/bin/env python3
"""sql.py FILE STATEMENT [VALUE...]: runs a statement in an SQLite file; ? are the values."""
import sqlite3
import sys

db = sqlite3.connect(sys.argv[1], timeout=60)
for row in db.execute(sys.argv[2], sys.argv[3:]):
    print(*row, sep="\t")
db.commit()
