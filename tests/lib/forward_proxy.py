"""forward_proxy.py PORT_FILE LOG: an HTTP proxy on the loopback, for `GET http://...` and CONNECT. Writes its port to
PORT_FILE once it listens, and the host of each request to LOG, one a line. Ends with SIGTERM."""

import asyncio
import os
import sys
from urllib.parse import urlsplit

HEAD_BYTES = 65536


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(reader, writer, log):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, version = head.split(b"\r\n", 1)[0].decode().split(" ")
        if method == "CONNECT":
            host, port = target.rsplit(":", 1)
        else:
            url = urlsplit(target)
            host, port = url.hostname, url.port or 80
        log.write(host + "\n")
        log.flush()
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
        return
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    else:
        # One request a connection: the next one may be for another host.
        path = url.path + ("?" + url.query if url.query else "")
        lines = head.split(b"\r\n")[1:-2]
        lines = [line for line in lines if not line.lower().startswith((b"connection:", b"proxy-connection:"))]
        far_writer.write(b"\r\n".join([f"{method} {path} {version}".encode(), *lines, b"Connection: close", b"", b""]))
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


async def main(port_file, log_file):
    with open(log_file, "w", encoding="utf-8") as log:
        server = await asyncio.start_server(lambda r, w: serve(r, w, log), "127.0.0.1", 0, limit=HEAD_BYTES)
        with open(port_file + ".new", "w", encoding="utf-8") as out:
            out.write(str(server.sockets[0].getsockname()[1]))
        os.rename(port_file + ".new", port_file)
        await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
