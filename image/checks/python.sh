# shellcheck shell=sh disable=SC2154,SC2164
version "$(python3 --version)"
python3 - >out <<'PY'
import hashlib, json, sqlite3, ssl, zlib
db = sqlite3.connect(":memory:")
db.execute("create table t (n integer)")
db.executemany("insert into t values (?)", [(n,) for n in range(1000)])
print(json.dumps({"sum": db.execute("select sum(n) from t").fetchone()[0],
                  "sha": hashlib.sha256(b"box").hexdigest()[:8],
                  "crc": zlib.crc32(b"box")}))
PY
sha=$(printf box | sha256sum | cut -c 1-8)
is "python's answer" "$(cat out)" '{"sum": 499500, "sha": "'"$sha"'", "crc": 145311802}'
