#!/usr/bin/env python3
"""many_boxes.py STATE_DIR BOX N: adds N copies of a stopped box to the store, called z-1 to z-N (they have no disk)."""
import os
import sqlite3
import sys

db = sqlite3.connect(os.path.join(sys.argv[1], "store.db"), timeout=60)
names = [c[1] for c in db.execute("PRAGMA table_info(boxes)")]
row = dict(zip(names, db.execute("SELECT * FROM boxes WHERE name = ?", (sys.argv[2],)).fetchone()))
assert row["state"] == "stopped", row["state"]
db.executemany(
    f"INSERT INTO boxes({', '.join(names)}) VALUES ({', '.join(':' + n for n in names)})",
    ({**row, "id": f"{i:016x}", "name": f"z-{i}"} for i in range(1, int(sys.argv[3]) + 1)))
db.commit()
