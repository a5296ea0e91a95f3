/*
 * agent: a conversation with the coding agent of a box: opencode's own HTTP API, through the gateway. The agent's
 * password travels in Authorization, and the daemon's token beside it.
 */
import {boxPath, call, follow, request} from './api.js';
import {act, blank, button, h, sentence, setText} from './dom.js';

const TOKEN_HEADER = 'X-Access-Token';
const REREAD_MS = 300; /* after the last event of a message that was not known */

/* opencode by its port: get/post a path of it. */
function client(box, login) {
    const base = boxPath(box.id, 'proxy', String(login.port));
    const headers = {};

    if (login.password)
        headers.Authorization = `Basic ${btoa(`${login.username}:${login.password}`)}`;
    const options = {headers, tokenHeader: TOKEN_HEADER};

    return {
        get: path => call('GET', base + path, options),
        post: async (path, json = {}) => {
            const response = await request('POST', base + path, {...options, json});
            const text = await response.text();

            return text ? JSON.parse(text) : null;
        },
        follow: (path, o) => follow(base + path, {...options, ...o}),
    };
}

/* ---- parts of a message ---- */

function toolText(part) {
    const s = part.state || {};
    const input = s.input?.command || s.input?.filePath || s.input?.path || s.input?.pattern || '';

    return {title: `${part.tool} ${s.title || input}`.trim(), status: s.status || '', output: s.output || s.error || ''};
}

function newPart(part) {
    if (part.type === 'text')
        return {element: h('div', {class: 'text'}), show(p) { setText(this.element, p.text || ''); }};
    if (part.type === 'reasoning')
        return {
            text: h('div', {class: 'text'}),
            get element() { return (this.box ||= h('details', {class: 'reasoning'}, h('summary', {}, 'Thinking'), this.text)); },
            show(p) { setText(this.text, p.text || ''); },
        };
    if (part.type === 'tool') {
        const title = h('summary', {});
        const output = h('pre', {});

        return {
            element: h('details', {class: 'tool'}, title, output),
            show(p) {
                const t = toolText(p);

                setText(title, `${t.title} ${t.status === 'completed' ? '✓' : t.status === 'error' ? '✗ failed' : `(${t.status})`}`);
                setText(output, t.output);
            },
        };
    }
    return null; /* steps, snapshots and the like say nothing to a person */
}

/* The messages of a session, as elements that are updated in place. */
function transcript(place) {
    const messages = new Map(); /* id -> {element, parts: Map} */

    function message(info) {
        let m = messages.get(info.id);

        if (!m) {
            m = {parts: new Map(), body: h('div', {}), problem: h('p', {class: 'problem'})};
            m.element = h('article', {class: `message ${info.role}`},
                h('h4', {}, info.role === 'user' ? 'You' : 'Agent'), m.body, m.problem);
            messages.set(info.id, m);
            place.append(m.element);
        }
        if (info.error)
            setText(m.problem, sentence(info.error.data?.message || info.error.name));
        return m;
    }

    function part(p) {
        const m = messages.get(p.messageID);
        let known = m?.parts.get(p.id);

        if (!m)
            return false;
        if (!known) {
            known = {view: newPart(p), value: p};
            m.parts.set(p.id, known);
            if (known.view)
                m.body.append(known.view.element);
        }
        known.value = p;
        known.view?.show(p);
        return true;
    }

    return {
        message,
        part,
        delta(e) {
            const known = messages.get(e.messageID)?.parts.get(e.partID);

            if (!known)
                return false;
            known.value = {...known.value, [e.field]: (known.value[e.field] || '') + e.delta};
            known.view?.show(known.value);
            return true;
        },
        clear() {
            messages.clear();
            place.replaceChildren();
        },
    };
}

/* ---- the panel ---- */

function permissionBar(place, agent, request) {
    const id = request.id;
    const item = h('div', {class: 'conflict', role: 'alert', 'data-id': id},
        h('p', {}, h('strong', {}, 'The agent asks for leave: '),
            h('code', {}, `${request.permission} ${(request.patterns || []).join(' ')}`)),
        h('div', {class: 'buttons'}, ...[['Allow once', 'once'], ['Always allow', 'always'], ['Refuse', 'reject']].map(
            ([label, reply]) => button(label, e => act(e.currentTarget, async () => {
                await agent.post(`/permission/${encodeURIComponent(id)}/reply`, {reply});
                item.remove();
            })))));

    place.append(item);
}

function conversation(place, box, agent) {
    const stop = new AbortController();
    const log = h('div', {class: 'messages', tabindex: '0', role: 'log', 'aria-label': 'Conversation'});
    const asks = h('div', {});
    const status = h('p', {class: 'muted small', role: 'status'}, 'Connecting to the agent…');
    const input = h('textarea', {name: 'prompt', rows: '3', placeholder: 'What should the agent do?', 'aria-label': 'Prompt'});
    const send = h('button', {type: 'submit', class: 'primary'}, 'Send');
    const abort = button('Abort', async e => {
        await act(e.currentTarget, () => agent.post(`/session/${session}/abort`));
        abort.disabled = !isBusy; // the event may have come before the answer
    }, {disabled: true});
    const sessions = h('select', {'aria-label': 'Conversation'});
    const form = h('form', {class: 'prompt'}, input, h('div', {class: 'buttons'}, abort, send));
    const lines = transcript(log);
    let session = null;
    let timer = null;
    let isBusy = false;

    place.replaceChildren(h('div', {class: 'filebar'}, sessions,
        button('New conversation', e => act(e.currentTarget, create))), log, asks, status, form);

    function setBusy(value) {
        isBusy = value;
        abort.disabled = !isBusy;
        setText(status, isBusy ? 'The agent is at work…' : 'The agent waits for you.');
        log.setAttribute('aria-busy', String(isBusy));
    }

    /* Stays at the end unless the person scrolled up. */
    function keepEnd(change) {
        const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 24;

        change();
        if (atEnd)
            log.scrollTop = log.scrollHeight;
    }

    async function reread() {
        if (!session)
            return;
        const wanted = session;
        const all = await agent.get(`/session/${wanted}/message`);

        if (wanted === session)
            keepEnd(() => all.forEach(m => {
                lines.message(m.info);
                m.parts.forEach(lines.part);
            }));
    }

    function rereadSoon() {
        clearTimeout(timer);
        timer = setTimeout(() => reread().catch(() => {}), REREAD_MS);
    }

    async function open(id) {
        if (session !== id)
            lines.clear();
        session = id;
        sessions.value = id;
        const [states] = await Promise.all([agent.get('/session/status'), reread()]);

        if (session === id)
            setBusy((states[id]?.type || 'idle') !== 'idle');
    }

    function addSession(s) {
        sessions.prepend(h('option', {value: s.id}, s.title || s.id));
    }

    async function create() {
        const s = await agent.post('/session');

        addSession(s);
        await open(s.id);
        input.focus();
    }

    function askPermission(request) {
        if (![...asks.children].some(a => a.dataset.id === request.id))
            permissionBar(asks, agent, request);
    }

    async function start() {
        const [all, waiting] = await Promise.all(['/session', '/permission'].map(agent.get));

        asks.replaceChildren();
        waiting.forEach(askPermission);
        if (!sessions.children.length)
            all.filter(s => !s.parentID).sort((a, b) => a.time.updated - b.time.updated).forEach(addSession);
        if (session || all.length)
            await open(session || sessions.options[0].value);
        else
            setBusy(false);
    }

    function onEvent(e) {
        const {type, properties: p = {}} = JSON.parse(e.data);
        const of = p.sessionID || p.info?.sessionID || p.part?.sessionID;

        /* Of any session: an agent that waits may be one that the conversation's agent has started. */
        if (type === 'permission.asked')
            askPermission(p);
        else if (type === 'permission.replied')
            [...asks.children].filter(a => a.dataset.id === p.requestID).forEach(a => a.remove());
        if (!session || of !== session)
            return;
        if (type === 'message.updated')
            keepEnd(() => lines.message(p.info));
        else if (type === 'message.part.updated')
            keepEnd(() => lines.part(p.part) || rereadSoon());
        else if (type === 'message.part.delta')
            keepEnd(() => lines.delta(p) || rereadSoon());
        else if (type === 'session.status')
            setBusy(p.status?.type !== 'idle');
        else if (type === 'session.idle')
            setBusy(false);
        else if (type === 'session.error')
            setText(status, sentence(p.error?.data?.message || 'the agent failed'));
    }

    sessions.addEventListener('change', () => act(null, () => open(sessions.value)));
    input.addEventListener('keydown', e => {
        if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            form.requestSubmit();
        }
    });
    form.addEventListener('submit', e => {
        e.preventDefault();
        const text = input.value.trim();

        if (text)
            act(send, async () => {
                if (!session)
                    await create();
                setBusy(true);
                try {
                    await agent.post(`/session/${session}/prompt_async`, {parts: [{type: 'text', text}]});
                } catch (error) {
                    setBusy(false);
                    throw error;
                }
                input.value = '';
            });
    });
    agent.follow('/event', {
        signal: stop.signal,
        onEvent,
        onOpen: start,
        onDown: e => setText(status, e ? `${sentence(e)} Trying again…` : 'Connecting again…'),
    });
    return {
        leave: () => {
            stop.abort();
            clearTimeout(timer);
        },
    };
}

export function agentPanel(place, box) {
    const name = box.agent?.name;
    let panel = null;
    let isLeft = false;

    async function open() {
        try {
            const login = await call('GET', boxPath(box.id, 'agent'));

            if (isLeft)
                return;
            if (!login.port) {
                place.replaceChildren(blank('The agent does not answer yet', 'Its port is not known.'));
                return;
            }
            panel = conversation(place, box, client(box, login));
        } catch (e) {
            place.replaceChildren(blank('The agent cannot be reached', sentence(e)));
        }
    }

    if (!name || name === 'none') {
        place.replaceChildren(blank('No agent in this box',
            'It was made without one. "New box", or "bellhop up --agent opencode", makes a box with one.'));
    } else if (name !== 'opencode') {
        place.replaceChildren(blank(`${name} has no HTTP API`, 'Talk to it in the terminal.',
            h('p', {}, h('a', {href: `#/box/${encodeURIComponent(box.id)}/terminal`}, 'Open the terminal'))));
    } else if (box.state !== 'running' && box.state !== 'paused') {
        place.replaceChildren(blank('The box does not run', 'Start it to talk to the agent.'));
    } else {
        place.replaceChildren(blank('One moment', 'The agent is being asked.'));
        open();
    }
    return {
        leave: () => {
            isLeft = true;
            panel?.leave();
        },
    };
}
