#!/usr/bin/env python3
"""many_events.py STATE_DIR BOX N: adds N events of a box to the store, as fast as it can."""
import glob
import os
import sqlite3
import sys
import uuid

path = [p for p in glob.glob(sys.argv[1] + "/*") if os.path.isfile(p) and open(p, "rb").read(15) == b"SQLite format 3"][0]
db = sqlite3.connect(path, timeout=60)
box, seq, time_ms, state = db.execute(
    "SELECT e.box_id, e.seq, e.time_ms, e.after FROM events e JOIN boxes b ON b.id = e.box_id WHERE b.name = ? ORDER BY seq DESC",
    (sys.argv[2],)).fetchone()
db.executemany(
    "INSERT INTO events(box_id, seq, id, kind, time_ms, before, after, cause, actor) VALUES (?, ?, ?, 'noise', ?, ?, ?, ?, 'test')",
    ((box, seq + i, uuid.uuid4().hex, time_ms, state, state, "x" * 100) for i in range(1, int(sys.argv[3]) + 1)))
db.commit()
