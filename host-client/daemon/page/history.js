/* history: what happened to a box (its events, from its first one on), and what it wrote (its logs). */
import {boxPath, call, request} from './api.js';
import {h, sentence, setText, time} from './dom.js';

const EVENTS_SHOWN = 500;
const LOGS_MS = 3000;
const LOG_SHOWN = 200000; /* characters */

/* ---- events ---- */

function eventRow(e) {
    const what = e.before && e.before !== e.after ? `${e.before} → ${e.after}` : e.after;

    return h('tr', {},
        h('td', {class: 'when'}, h('time', {datetime: new Date(e.time_ms).toISOString()}, time(e.time_ms))),
        h('td', {}, e.kind), h('td', {}, what), h('td', {class: 'wide'}, e.cause || ''),
        h('td', {class: 'muted'}, e.actor || ''));
}

/* All events that are stored, in pages; the page's stream says when there are more. */
export function eventsPanel(place, box) {
    const stop = new AbortController();
    const body = h('tbody', {});
    const status = h('p', {class: 'muted small', role: 'status'}, 'Reading the events…');
    let since = 0;
    let isReading = false;
    let isStale = false; /* there are events that the present reading may not have */

    place.replaceChildren(status, h('div', {class: 'scroll'}, h('table', {class: 'events'},
        h('thead', {}, h('tr', {}, ...['When', 'Event', 'State', 'Cause', 'By'].map(t =>
            h('th', {scope: 'col'}, t)))), body)));

    async function readPages() {
        let page;

        do {
            isStale = false;
            page = await call('GET', `${boxPath(box.id, 'history')}?since=${since}`, {signal: stop.signal});
            body.prepend(...page.events.map(eventRow).reverse());
            while (body.children.length > EVENTS_SHOWN)
                body.lastChild.remove();
            since = page.next_since;
        } while (page.more || isStale);
    }

    async function read() {
        isStale = true;
        if (isReading)
            return;
        isReading = true;
        try {
            await readPages();
            setText(status, 'Newest first. New events appear by themselves.');
        } catch (e) {
            if (!stop.signal.aborted)
                setText(status, sentence(e));
        }
        isReading = false;
    }

    read();
    return {event: read, reconnected: read, leave: () => stop.abort()};
}

/* ---- logs ---- */

const AGENT = ''; /* of the selection: the coding agent's own log */

/* The coding agent, and the commands of the box that run. */
async function logSources(box) {
    const list = box.agent?.name && box.agent.name !== 'none' ? [[AGENT, `the agent ${box.agent.name}`]] : [];

    if (box.state !== 'running')
        return list;
    const activity = await call('GET', boxPath(box.id, 'activity'));
    const exec = box.agent?.exec_id;

    return list.concat((activity.commands?.list || []).filter(c => c.id !== exec).map(c => [c.id, `${c.name} (${c.id})`]));
}

function showSources(select, sources) {
    const before = select.value;

    if (sources.map(s => s[0]).join('\n') === [...select.options].map(o => o.value).join('\n'))
        return;
    select.replaceChildren(...sources.map(([value, label]) => h('option', {value}, label)));
    if (sources.some(s => s[0] === before))
        select.value = before;
}

export function logsPanel(place, box) {
    const text = h('pre', {class: 'log', tabindex: '0', 'aria-label': 'Log'});
    const status = h('p', {class: 'muted small', role: 'status'}, 'Reading the log…');
    const select = h('select', {'aria-label': 'Log of'});
    const stop = new AbortController();

    place.replaceChildren(h('div', {class: 'filebar'}, select), text, status);

    async function readLog() {
        const query = select.value === AGENT ? '' : `?id=${encodeURIComponent(select.value)}`;
        const response = await request('GET', boxPath(box.id, 'logs') + query, {signal: stop.signal});
        const all = new TextDecoder().decode(await response.arrayBuffer());

        return all.length > LOG_SHOWN ? `… the beginning is left out …\n${all.slice(-LOG_SHOWN)}` : all;
    }

    async function read() {
        const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;

        try {
            showSources(select, await logSources(box));
            select.hidden = !select.options.length;
            if (select.hidden) {
                setText(text, '');
                setText(status, 'No agent and no command of the box is at work, so that there is no log.');
                return;
            }
            const now = plainText(await readLog());

            setText(text, now);
            setText(status, now ? 'The newest lines are at the end.' : 'Nothing was written yet.');
            if (atEnd)
                text.scrollTop = text.scrollHeight;
        } catch (e) {
            if (!stop.signal.aborted)
                setText(status, e.isMissingRoute ? `This daemon does not serve logs. On the command line: bellhop logs ${box.name}`
                    : sentence(e));
        }
    }

    const timer = setInterval(() => !document.hidden && read(), LOGS_MS);

    select.addEventListener('change', read);
    read();
    return {
        update: b => {
            box = b;
        },
        reconnected: read,
        leave: () => {
            clearInterval(timer);
            stop.abort();
        },
    };
}

/* Colours and cursor movements of terminals are left out. */
function plainText(text) {
    return text.replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g, '').replace(/\r\n?/g, '\n');
}
