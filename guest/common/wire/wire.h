#pragma once
/* wire: the names and numbers that the agent and its clients share. */

#define WIRE_PROTOCOL \
    1 /* raised if a meaning changes or is removed; new optional fields are free */

#define WIRE_SERVICE_PREFIX "bellhop.v1."
/* "1": the request does not count as use of the box. For monitoring. */
#define WIRE_HEADER_QUIET "Bellhop-Quiet"
/* The X-Forwarded-Prefix that /v1/proxy gives the server, from a gateway that shows it elsewhere; may be empty. */
#define WIRE_HEADER_PREFIX "Bellhop-Proxy-Prefix"
/* Seconds that an upload is kept without a request; of the request that begins it. */
#define WIRE_HEADER_UPLOAD_AGE "Bellhop-Upload-Max-Age"
/* Of the host's daemon: which one answers its health, and on the unix socket who asks (an event's actor). */
#define WIRE_HEADER_DAEMON "Bellhop-Daemon"
#define WIRE_HEADER_ACTOR "Bellhop-Actor"
#define WIRE_JSON_MAX_BYTES (16 * 1024 * 1024) /* one request body of an rpc method */

#define WIRE_TYPE_JSON "application/json"
#define WIRE_TYPE_NDJSON "application/x-ndjson"
#define WIRE_TYPE_CONNECT "application/connect+json"
#define WIRE_TYPE_SSE "text/event-stream"
