"""A server in the box and a client outside it, both of Python's `websockets`, through the gateway by host name.

    websockets_client.py DAEMON_PORT TOKEN BOX.localhost
"""

import asyncio
import sys

import websockets

DAEMON_PORT, TOKEN, DOMAIN = int(sys.argv[1]), sys.argv[2], sys.argv[3]
closed = asyncio.Queue()


async def serve(ws):
    try:
        async for message in ws:
            if message == "close":
                await ws.close(4001, "that is why")
            elif message == "ping me":
                await asyncio.wait_for(await ws.ping(b"from the box"), 20)
                await ws.send("pong came")
            else:
                await ws.send(message)
    finally:
        await ws.wait_closed()
        await closed.put((ws.close_code, ws.close_reason))


async def pieces():
    for i in range(10):
        yield bytes([i]) * 100000


async def main():
    async with websockets.serve(serve, "127.0.0.1", 0, max_size=8 << 20) as server:
        port = server.sockets[0].getsockname()[1]

        def connect(path="/"):
            return websockets.connect(f"ws://{port}-{DOMAIN}:{DAEMON_PORT}{path}", host="127.0.0.1", port=DAEMON_PORT,
                                      max_size=8 << 20, extra_headers={"X-Access-Token": TOKEN})

        async with connect() as ws:
            for message in ["", "h\u00e4llo", b"\0\xff", "x" * (1 << 20), bytes(range(256)) * 4096]:
                await ws.send(message)
                assert await ws.recv() == message, len(message)
            await ws.send(pieces())  # one message in ten frames
            assert await ws.recv() == b"".join([bytes([i]) * 100000 for i in range(10)])
            await asyncio.wait_for(await ws.ping(b"from outside"), 20)
            await ws.send("ping me")
            assert await ws.recv() == "pong came"
            await ws.close(4002, "mine")
        assert await asyncio.wait_for(closed.get(), 20) == (4002, "mine")
        async with connect("/path?a=b") as ws:
            await ws.send("close")
            try:
                await ws.recv()
                raise AssertionError("the box did not close")
            except websockets.ConnectionClosed as e:
                assert (e.rcvd.code, e.rcvd.reason) == (4001, "that is why"), e


asyncio.run(asyncio.wait_for(main(), 120))
print("ok")
