/* box: one box: its actions, and its tabs, of which one is open. */
import {boxPath, call, token} from './api.js';
import {act, ask, bytes, blank, button, copyField, duration, field, h, notice, sentence, setText, time} from './dom.js';
import {agentPanel} from './agent.js';
import {eventsPanel, logsPanel} from './history.js';
import {filesPanel} from './files.js';
import {terminalPanel} from './terminal.js';

const POLL_MS = 5000;
const PORTS_SHOWN = 64;

const TABS = [
    ['overview', 'Overview', overviewPanel],
    ['files', 'Files', filesPanel],
    ['terminal', 'Terminal', terminalPanel],
    ['agent', 'Agent', agentPanel],
    ['logs', 'Logs', logsPanel],
    ['events', 'Events', eventsPanel],
];

const WAITING = ['requested', 'provisioning', 'bootstrapping', 'pausing', 'resuming', 'stopping', 'destroying'];

/* ---- the actions ---- */

function change(box, step) {
    return call('POST', boxPath(box.id, step), {json: {}});
}

function nameField(label, value, hint) {
    return field(label, h('input', {name: 'name', value, autocomplete: 'off', spellcheck: 'false',
        maxlength: '63'}), hint);
}

function askSnapshot(box) {
    return ask({
        title: `Snapshot of ${box.name}`,
        text: 'A snapshot keeps the content of the disk. New boxes can start from it.',
        fields: [nameField('Name', `${box.name}-${new Date().toISOString().slice(0, 10)}`)],
        action: 'Make the snapshot',
        read: f => f.elements.name.value.trim(),
        submit: async name => {
            await call('POST', boxPath(box.id, 'snapshots'), {json: name ? {name} : {}});
            notice(`The snapshot ${name} is made.`);
        },
    });
}

function askFork(box) {
    return ask({
        title: `Fork ${box.name}`,
        text: 'A new box starts with a copy of this box\'s disk.',
        fields: [nameField('Name of the new box', `${box.name}-fork`)],
        action: 'Fork',
        read: f => f.elements.name.value.trim(),
        submit: async name => {
            const made = await call('POST', boxPath(box.id, 'fork'), {json: name ? {name} : {}});
            const first = made.boxes ? made.boxes[0] : made;

            if (first?.id)
                location.hash = `#/box/${encodeURIComponent(first.id)}`;
        },
    });
}

function askRemove(box) {
    return ask({
        title: `Remove ${box.name}?`,
        text: 'The box, its disk and all changes in it are destroyed. This cannot be undone.',
        fields: [field(`Type ${box.name} to confirm`,
            h('input', {name: 'name', autocomplete: 'off', spellcheck: 'false'}))],
        action: 'Remove the box',
        kind: 'danger',
        check: f => f.elements.name.value === box.name,
        submit: () => call('DELETE', boxPath(box.id)),
    });
}

/* The same buttons in each state, so that nothing moves: what cannot be done now is disabled. */
function actionBar(get, refresh) {
    const step = name => e => act(e.currentTarget, async () => {
        await change(get(), name);
        refresh();
    });
    const b = {
        pause: button('Pause', step('pause')),
        resume: button('Resume', step('resume')),
        start: button('Start', step('start')),
        stop: button('Stop', step('stop')),
        snapshot: button('Snapshot…', () => askSnapshot(get())),
        fork: button('Fork…', () => askFork(get())),
        remove: button('Remove…', () => askRemove(get()), {class: 'danger'}),
    };

    function update(box) {
        const is = (...states) => states.includes(box.state);

        b.pause.hidden = is('paused', 'resuming');
        b.resume.hidden = !b.pause.hidden;
        b.start.hidden = !is('stopped', 'error');
        b.stop.hidden = !b.start.hidden;
        b.pause.disabled = !is('running');
        b.resume.disabled = !is('paused');
        b.stop.disabled = !is('running', 'paused');
        b.snapshot.disabled = b.fork.disabled = !is('running', 'paused', 'stopped');
        b.remove.disabled = is('destroying');
    }
    return {element: h('div', {class: 'actions'}, ...Object.values(b)), update};
}

/* ---- overview ---- */

function facts(...rows) {
    return h('dl', {class: 'facts'}, rows.map(([name, value]) =>
        h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

function limit(value, text) {
    return value > 0 ? text(value) : 'no limit';
}

/* There are no prices here: hosts charge by the processor's time, and by the memory that is held, times its time. */
function hoursText(ms) {
    return ms ? (ms / 3600000).toFixed(3) : '–';
}

/* GiB times milliseconds, since the box runs. */
function heldMs(box, now) {
    return box.state === 'running' ? (now - box.state_since_ms) * (box.options?.memory_bytes || 0) / 2 ** 30 : 0;
}

function memoryText(enforced) {
    const used = enforced?.used?.memory_bytes;
    const most = enforced?.limits?.memory_bytes;

    if (!used)
        return 'not measured';
    return most > 0 ? `${bytes(used)} of ${bytes(most)}` : bytes(used);
}

function endsAt(box, now) {
    if (!box.deadline_ms)
        return 'no end is set';
    return `in ${duration(box.deadline_ms - now)} (${box.options?.on_timeout || 'stop'})`;
}

function activityText(a) {
    const words = {calls: 'requests', commands: 'commands', connections: 'connections', cpu: 'processor', holds: 'holds'};

    if (a.busy)
        return `busy: ${(a.reasons || []).map(r => words[r] || r).join(', ') || 'in use'}`;
    return `idle for ${duration(a.idle_ms ?? 0)}`;
}

/* ---- ports ---- */

const isLocal = /^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
const LIFETIMES = [[3600000, 'an hour'], [86400000, 'a day'], [604800000, 'a week'], [0, 'until it is closed']];

function signedUrl(box, port, forMs) {
    return call('POST', boxPath(box.id, 'urls'), {json: {port, lan: !isLocal, for_ms: forMs}});
}

/* A web UI of the box, under a host name of its own: its pages have nothing to do with this one, its token included. */
function portLink(box, p) {
    const label = p.process?.name ? `${p.port} (${p.process.name})` : String(p.port);
    const host = `${p.port}-${box.id}.localhost${location.port ? `:${location.port}` : ''}`;

    return h('a', {href: `${location.protocol}//${host}/`, target: '_blank', rel: 'noreferrer noopener', onclick: e => {
        if (!token())
            return;
        e.preventDefault();
        act(null, async () => window.open((await signedUrl(box, p.port, LIFETIMES[0][0])).url, '_blank', 'noreferrer'));
    }}, label);
}

async function sharePort(box, port) {
    const names = LIFETIMES.map(([ms, name]) => h('option', {value: ms}, name));
    let made = null;

    await ask({
        title: `Share port ${port}`,
        text: 'The URL needs no token: it is for everybody who has it.',
        fields: [field('It leads there for', h('select', {name: 'time'}, names))],
        action: 'Make the URL',
        read: f => Number(f.elements.time.value),
        submit: async ms => {
            made = ms ? await signedUrl(box, port, ms)
                : await call('PUT', boxPath(box.id, 'public', String(port)), {json: {}});
        },
    });
    if (made)
        await ask({
            title: `The URL of port ${port}`,
            text: made.until_ms ? `Until ${time(made.until_ms)}.` : 'Until the port is closed here.',
            fields: [copyField('URL', 'url', made.url)],
            action: 'Done',
            cancel: null,
        });
}

function portRow(box, p, isOpen, read) {
    const share = button('Share…', async () => {
        await sharePort(box, p.port);
        read();
    }, {'aria-label': `Share port ${p.port}`});
    const close = button('Close', e => act(e.currentTarget, async () => {
        await call('DELETE', boxPath(box.id, 'public', String(p.port)));
        read();
    }), {'aria-label': `Close port ${p.port}`});

    return h('li', {}, h('span', {}, portLink(box, p)),
        isOpen ? h('span', {class: 'muted small'}, 'open to everybody') : null, isOpen ? close : share);
}

/* An open port stays so while nothing listens. The list is made anew only if it has changed: a button keeps its focus. */
function portList(place, get) {
    let shown = '';

    return async function read() {
        const box = get();

        try {
            const [answer, open] = await Promise.all(['ports', 'public'].map(part => call('GET', boxPath(box.id, part))));
            const list = (answer.ports || []).filter(p => p.reachable && !p.agent).slice(0, PORTS_SHOWN);
            const silent = open.ports.filter(port => !list.some(p => p.port === port)).map(port => ({port}));
            const now = JSON.stringify([list, silent, open.ports]);

            if (now === shown && place.children.length)
                return;
            shown = now;
            place.replaceChildren(list.length + silent.length
                ? h('ul', {class: 'lines'}, [...list, ...silent].map(p => portRow(box, p, open.ports.includes(p.port), read)))
                : h('p', {class: 'muted'}, 'Nothing listens.'));
        } catch (e) {
            place.replaceChildren(h('p', {class: 'muted'}, sentence(e)));
        }
    };
}

/* ---- snapshots ---- */

function snapshotRow(box, snapshot, read) {
    const restore = button('Restore', async () => {
        if (await ask({
            title: `Take ${box.name} back to ${snapshot.name}?`,
            text: 'The changes to the disk since then are lost. The box restarts.',
            action: 'Restore', kind: 'danger',
            submit: () => call('POST', boxPath(box.id, 'restore'), {json: {snapshot: snapshot.name}}),
        }))
            notice(`${box.name} is as it was in ${snapshot.name}.`);
    }, {'aria-label': `Restore ${snapshot.name}`});
    const remove = button('Remove', async () => {
        await ask({
            title: `Remove the snapshot ${snapshot.name}?`, text: 'This cannot be undone.',
            action: 'Remove', kind: 'danger',
            submit: () => call('DELETE', `/v1/snapshots/${encodeURIComponent(snapshot.name)}`),
        });
        read();
    }, {'aria-label': `Remove ${snapshot.name}`});

    return h('li', {}, h('span', {}, snapshot.name),
        h('span', {class: 'muted small'}, `${time(snapshot.created_ms)}, ${bytes(snapshot.bytes)}`), restore, remove);
}

function snapshotList(place, get) {
    return async function read() {
        try {
            const all = (await call('GET', boxPath(get().id, 'snapshots'))).snapshots;

            place.replaceChildren(all.length ? h('ul', {class: 'lines'}, all.map(s => snapshotRow(get(), s, read)))
                : h('p', {class: 'muted'}, 'None yet.'));
        } catch (e) {
            place.replaceChildren(h('p', {class: 'muted'}, sentence(e)));
        }
    };
}

function overviewPanel(place, box) {
    const slots = {};
    const slot = name => (slots[name] = slots[name] || h('span', {}));
    let current = box;
    let cpu = null; /* as it was last measured */
    let timer = null;

    place.replaceChildren(
        h('section', {class: 'now'}, h('h3', {}, 'Now'), facts(
            ['State', slot('state')], ['Cause', slot('cause')], ['Activity', slot('activity')],
            ['Ends', slot('ends')], ['Processor', slot('cpu')], ['Memory in use', slot('memory')],
            ['Processor-hours', slot('cpuHours')], ['GiB-hours', slot('memoryHours')])),
        h('section', {}, h('h3', {}, 'Limits'), facts(
            ['Processors', slot('cpus')], ['Memory', slot('memoryLimit')], ['Disk', slot('disk')],
            ['Processes', slot('pids')], ['Network', slot('network')], ['When idle', slot('idle')])),
        h('section', {}, h('h3', {}, 'Box'), facts(
            ['Id', slot('id')], ['Image', slot('image')], ['Provider', slot('provider')],
            ['Made', slot('made')], ['Directory', slot('workdir')], ['Agent', slot('agent')],
            ['Labels', slot('labels')])),
        h('section', {class: 'late'}, h('h3', {}, 'Snapshots'), slot('snapshots')),
        h('section', {class: 'late'}, h('h3', {}, 'Open ports'), slot('ports')));
    const readSnapshots = snapshotList(slots.snapshots, () => current);
    const readPorts = portList(slots.ports, () => current);

    function showNow() {
        const now = Date.now();

        setText(slots.state, `${current.state}, ${duration(now - current.state_since_ms)}`);
        setText(slots.ends, endsAt(current, now));
        setText(slots.cpuHours, hoursText(cpu?.total_ms));
        setText(slots.memoryHours, hoursText(heldMs(current, now)));
    }

    function show() {
        const o = current.options || {};
        const labels = Object.entries(current.labels || {});

        showNow();
        setText(slots.cause, current.cause || '–');
        slots.cause.title = current.cause || '';
        setText(slots.cpus, limit(o.cpu_millis, n => `${n / 1000}`));
        setText(slots.memoryLimit, limit(o.memory_bytes, bytes));
        setText(slots.disk, limit(o.disk_bytes, bytes));
        setText(slots.pids, limit(o.pids, String));
        setText(slots.network, o.network || '–');
        setText(slots.idle, o.idle_ms ? `${o.on_idle} after ${duration(o.idle_ms)}` : 'stays');
        setText(slots.id, current.id);
        setText(slots.image, current.image || '–');
        setText(slots.provider, [current.provider, o.runtime].filter(Boolean).join(', '));
        setText(slots.made, time(current.created_ms));
        setText(slots.workdir, current.workdir || '–');
        setText(slots.agent, [current.agent?.name, current.agent?.version].filter(Boolean).join(' ') || 'none');
        setText(slots.labels, labels.map(([k, v]) => `${k}=${v}`).join(', ') || '–');
    }

    async function poll() {
        if (current.state !== 'running') {
            setText(slots.activity, current.state);
            cpu = null;
            for (const name of ['cpu', 'memory', 'ports'])
                setText(slots[name], '–');
            return;
        }
        if (document.hidden)
            return;
        readPorts();
        try {
            const [a, status] = await Promise.all(
                ['activity', 'status'].map(part => call('GET', boxPath(current.id, part))));

            cpu = a.cpu;
            setText(slots.activity, activityText(a));
            setText(slots.cpu, cpuText(a.cpu));
            setText(slots.memory, memoryText(status.enforced));
        } catch (e) {
            setText(slots.activity, e.isMissingRoute ? 'not known' : sentence(e));
        }
    }

    function pollAll() {
        poll();
        readSnapshots();
    }

    show();
    pollAll();
    const ticker = setInterval(showNow, 1000);

    timer = setInterval(poll, POLL_MS);
    return {
        update: b => {
            const changed = b.state !== current.state;

            current = b;
            show();
            if (changed)
                pollAll();
        },
        event: e => e.kind !== 'state' && readSnapshots(),
        reconnected: pollAll,
        leave: () => {
            clearInterval(timer);
            clearInterval(ticker);
        },
    };
}

function cpuText(cpu) {
    const total = `${duration(cpu?.total_ms ?? 0)} in all`;

    return cpu?.window_ms ? `${Math.round(100 * cpu.recent_ms / cpu.window_ms)} % now, ${total}` : total;
}

/* ---- the view ---- */

export function boxView(place, box, {refresh}) {
    const parts = {
        name: h('h1', {}, box.name),
        state: h('span', {class: 'state'}),
        cause: h('p', {class: 'cause muted'}),
        panel: h('div', {class: 'panel'}),
    };
    const links = new Map(TABS.map(([id, label]) =>
        [id, h('a', {href: `#/box/${encodeURIComponent(box.id)}/${id}`, 'data-label': label}, label)]));
    let current = box;
    const actions = actionBar(() => current, refresh);
    let panel = null;
    let tab = null;

    place.replaceChildren(
        h('a', {class: 'back', href: '#/'}, '‹ All boxes'),
        h('div', {class: 'head'}, parts.name, parts.state, parts.cause),
        actions.element,
        h('nav', {class: 'tabs', 'aria-label': 'Parts of the box'}, ...links.values()),
        parts.panel);

    function update(b) {
        current = b;
        setText(parts.name, b.name);
        setText(parts.state, b.state);
        parts.state.dataset.state = b.state;
        setText(parts.cause, WAITING.includes(b.state) ? `${b.cause || 'in progress'}…`
            : b.state === 'error' ? sentence(b.cause || 'it failed') : b.cause || '');
        parts.cause.title = b.cause || '';
        parts.cause.classList.toggle('is-problem', b.state === 'error');
        actions.update(b);
        panel?.update?.(b);
    }

    function open(name) {
        const row = TABS.find(t => t[0] === name) || TABS[0];

        if (tab === row[0])
            return;
        panel?.leave?.();
        panel = null;
        tab = row[0];
        for (const [id, link] of links) {
            if (id === tab)
                link.setAttribute('aria-current', 'page');
            else
                link.removeAttribute('aria-current');
        }
        parts.panel.className = `panel ${tab}`;
        parts.panel.replaceChildren();
        try {
            panel = row[2](parts.panel, current);
        } catch (e) {
            parts.panel.replaceChildren(blank('This part could not be shown', sentence(e)));
        }
    }

    update(box);
    return {
        update,
        open,
        event: e => panel?.event?.(e),
        reconnected: () => panel?.reconnected?.(),
        leave: () => {
            panel?.leave?.();
            panel = null;
        },
    };
}
