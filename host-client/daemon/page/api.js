/*
 * api: requests to the daemon that has served this page. The token is in the tab's session storage, and is sent in a
 * header: no other page can make the browser send it.
 */
const TOKEN = 'bellhop.token';
const SILENCE_MS = 40000; /* the daemon sends a sign of life every 15 s */
const STREAMS_MOST = 4; /* of the six connections that a browser has for a server: two stay for requests */
const POLL_MS = 5000; /* of a window without a stream */
const RETRY_MS = [250, 500, 1000, 2000, 4000];

export class ApiError extends Error {
    constructor(status, body) {
        super(body.message || `the daemon answered with ${status}`);
        this.status = status;
        this.code = body.code || '';
        this.field = body.field || '';
        this.detail = body.detail || {};
    }
    /* The daemon has no such route: it is older than this page's wish, or the part is not built in. */
    get isMissingRoute() {
        return this.status === 501 || (this.status === 404 && /^there is no '/.test(this.message));
    }
}

export function token() {
    return sessionStorage.getItem(TOKEN) || '';
}

export function setToken(text) {
    if (text)
        sessionStorage.setItem(TOKEN, text);
    else
        sessionStorage.removeItem(TOKEN);
}

/* "#token=T" of a link moves out of the address, so that it is not copied along with it. */
export function takeTokenOfAddress() {
    const found = /^#token=([^&]+)$/.exec(location.hash);

    if (!found)
        return;
    setToken(decodeURIComponent(found[1]));
    history.replaceState(null, '', location.pathname + location.search + '#/');
}

/* The path of a box's route; each part is encoded. */
export function boxPath(id, ...parts) {
    return ['/v1/boxes', encodeURIComponent(id), ...parts].join('/');
}

/* The route of a file: an absolute path begins with a second slash. */
export function filePath(id, path) {
    return boxPath(id, 'files', path.split('/').map(encodeURIComponent).join('/'));
}

async function errorOf(response) {
    let body = {};

    try {
        body = await response.json();
    } catch {
        /* it is not the daemon's own */
    }
    return new ApiError(response.status, body);
}

/* A response whose status says success; else an ApiError. o: as of fetch(), and json, tokenHeader. */
export async function request(method, path, o = {}) {
    const headers = new Headers(o.headers);
    let response;

    if (token() && o.tokenHeader)
        headers.set(o.tokenHeader, token());
    else if (token())
        headers.set('Authorization', `Bearer ${token()}`);
    if (o.json !== undefined)
        headers.set('Content-Type', 'application/json');
    try {
        response = await fetch(path, {
            method,
            headers,
            body: o.json !== undefined ? JSON.stringify(o.json) : o.body,
            signal: o.signal,
            cache: 'no-store',
            credentials: 'omit',
            redirect: 'error',
        });
    } catch (e) {
        if (o.signal?.aborted)
            throw e;
        throw new ApiError(0, {code: 'unavailable', message: 'the daemon does not answer'});
    }
    if (response.ok)
        return response;
    const error = await errorOf(response);

    if (error.status === 401)
        document.dispatchEvent(new CustomEvent('bellhop-token', {detail: error.message}));
    throw error;
}

export async function call(method, path, o = {}) {
    const response = await request(method, path, o);

    return response.status === 204 ? null : response.json();
}

/* A method of the box's own agent, by the gateway. quiet: it does not count as use. */
export function rpc(id, service, method, json, o = {}) {
    const headers = o.quiet ? {'Bellhop-Quiet': '1'} : {};

    return call('POST', boxPath(id, 'rpc', service, method), {json, headers, signal: o.signal});
}

/* Splits a stream of events into them: feed(text) calls on({id, event, data}) for each that is complete. */
function eventParser(on) {
    let rest = '';
    let event = {data: []};

    function line(text) {
        if (text === '') {
            if (event.data.length)
                on({id: event.id, event: event.event || 'message', data: event.data.join('\n')});
            event = {data: []};
            return;
        }
        const colon = text.indexOf(':');
        const name = colon < 0 ? text : text.slice(0, colon);
        const value = colon < 0 ? '' : text.slice(colon + 1).replace(/^ /, '');

        if (name === 'data')
            event.data.push(value);
        else if (name === 'id' || name === 'event')
            event[name] = value;
    }
    return text => {
        const lines = (rest + text).split(/\r?\n/);

        rest = lines.pop();
        lines.forEach(line);
    };
}

async function readStream(path, o, signal, alive) {
    const response = await request('GET', path, {...o, signal});
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = eventParser(o.onEvent);

    await o.onOpen?.();
    for (;;) {
        const {value, done} = await reader.read();

        if (done)
            return;
        alive();
        feed(value);
    }
}

/* Ends when the tab is seen, or with signal. */
function untilSeen(signal) {
    return new Promise(resolve => {
        const look = () => {
            if (document.hidden && !signal.aborted)
                return;
            document.removeEventListener('visibilitychange', look);
            signal.removeEventListener('abort', look);
            resolve();
        };

        document.addEventListener('visibilitychange', look);
        signal.addEventListener('abort', look);
        look();
    });
}

/*
 * A place among the streams of all windows of a browser: a function that gives it back, or null if all are taken. The
 * browser gives back the place of a window that is closed. It has locks only over TLS and at localhost: elsewhere each
 * window has its stream.
 */
async function takePlace() {
    let giveBack = navigator.locks ? null : () => {};

    for (let i = 0; !giveBack && i < STREAMS_MOST; i++)
        giveBack = await new Promise(resolve => {
            const hold = lock => lock && new Promise(end => resolve(end));

            navigator.locks.request(`bellhop-stream-${i}`, {ifAvailable: true}, hold)
                .catch(() => null).then(() => resolve(null));
        });
    return giveBack;
}

/* One connection, until it ends, the tab is hidden, or signal aborts; gives the error that has ended it, or null. */
async function streamOnce(path, o) {
    const cut = new AbortController();
    const onAbort = () => cut.abort();
    const onVisibility = () => document.hidden && cut.abort();
    let timer = setTimeout(onAbort, SILENCE_MS);
    let error = null;

    o.signal.addEventListener('abort', onAbort, {once: true});
    document.addEventListener('visibilitychange', onVisibility);
    try {
        const headers = typeof o.headers === 'function' ? o.headers() : o.headers;

        await readStream(path, {...o, headers}, cut.signal, () => {
            clearTimeout(timer);
            timer = setTimeout(onAbort, SILENCE_MS);
        });
    } catch (e) {
        error = e;
    }
    clearTimeout(timer);
    o.signal.removeEventListener('abort', onAbort);
    document.removeEventListener('visibilitychange', onVisibility);
    cut.abort();
    return error;
}

/* Without a stream: all is read again, as if it had just opened. */
async function readOnce(o) {
    try {
        await o.onOpen?.(true);
        return null;
    } catch (e) {
        return e;
    }
}

/*
 * Follows a stream of events until signal aborts, and connects again whenever it ends. A browser has six connections for
 * a server, in all tabs together: a hidden tab has no stream, and of the windows that are seen STREAMS_MOST have one. The
 * others ask every POLL_MS. o: signal, onEvent(event), onOpen(isPolled), onDown(error), headers (an object, or a function
 * for each connection anew), tokenHeader, and isFinal(error): it is no use to try again.
 */
export async function follow(path, o) {
    let failures = 0;
    const onOpen = isPolled => {
        failures = 0;
        return o.onOpen?.(isPolled);
    };

    while (!o.signal.aborted) {
        await untilSeen(o.signal);
        const giveBack = await takePlace();

        if (o.signal.aborted || document.hidden) {
            giveBack?.();
            continue;
        }
        const error = giveBack ? await streamOnce(path, {...o, onOpen}) : await readOnce({...o, onOpen});

        giveBack?.();
        if (o.signal.aborted || document.hidden)
            continue;
        if (giveBack || error)
            o.onDown?.(error);
        if (error && o.isFinal?.(error))
            return;
        await pause(giveBack || error ? RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] : POLL_MS, o.signal);
    }
}

/* Ends early if the network comes back, or the token is there. */
function pause(ms, signal) {
    return new Promise(resolve => {
        const end = () => {
            clearTimeout(timer);
            for (const [target, name] of wakers)
                target.removeEventListener(name, end);
            resolve();
        };
        const wakers = [[window, 'online'], [document, 'bellhop-retry'], [signal, 'abort']];
        const timer = setTimeout(end, ms);

        for (const [target, name] of wakers)
            target.addEventListener(name, end);
    });
}
