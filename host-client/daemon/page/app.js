/* app: the list of boxes, kept live by the daemon's events, and the route (#/box/ID/TAB) that says what is shown. */
import {boxPath, call, follow, setToken, takeTokenOfAddress} from './api.js';
import {age, button, blank, h, notice, sentence, setText} from './dom.js';
import {askNewBox} from './create.js';
import {accessView} from './admin.js';
import {boxView} from './box.js';

const REFRESH_MS = 100; /* events of one box come in groups */
const BANNER_MS = 2000;
const ACCESS = 'access';
const boxes = new Map(); /* id -> the box as the daemon shows it */
const rows = new Map(); /* id -> its elements in the list */
const refreshing = new Map(); /* id -> a timer */
const main = document.getElementById('main');
const view = document.getElementById('view');
const gate = document.getElementById('gate'); /* the question for a token; the view waits behind it */
const list = document.getElementById('boxes');
const accessLink = document.getElementById('access');
const filter = document.getElementById('filter');
let isLoaded = false;
let lastId = null; /* of the last event */
let shown = null; /* {id, view}; the id ACCESS is no box's */
let access = null; /* what this page's token may do */

takeTokenOfAddress();

/* ---- the list ---- */

function subtitle(box) {
    const agent = box.agent?.name && box.agent.name !== 'none' ? box.agent.name : null;

    return [box.provider, agent, age(Date.now() - box.created_ms)].filter(Boolean).join(' · ');
}

function matches(box) {
    const labels = Object.entries(box.labels || {}).map(([k, v]) => `${k}=${v}`);
    const text = [box.name, box.id, box.state, box.image, box.provider, ...labels].join('\n');

    return filter.value.toLowerCase().split(/\s+/).every(w => text.toLowerCase().includes(w));
}

function newRow(box) {
    const row = {
        name: h('span', {class: 'name'}),
        state: h('span', {class: 'state'}),
        sub: h('span', {class: 'sub muted small'}),
    };

    row.link = h('a', {class: 'row', href: `#/box/${encodeURIComponent(box.id)}`},
        row.name, row.state, row.sub);
    row.item = h('li', {'data-id': box.id}, row.link);
    return row;
}

function showRow(box) {
    const row = rows.get(box.id) || newRow(box);

    rows.set(box.id, row);
    setText(row.name, box.name);
    setText(row.state, box.state);
    row.state.dataset.state = box.state;
    setText(row.sub, subtitle(box));
    row.item.hidden = !matches(box);
    if (shown?.id === box.id)
        row.link.setAttribute('aria-current', 'page');
    else
        row.link.removeAttribute('aria-current');
    if (!row.item.isConnected) {
        const before = [...list.children].find(li => boxes.get(li.dataset.id)?.name > box.name);

        list.insertBefore(row.item, before || null);
    }
}

function showCounts() {
    const visible = [...rows.values()].filter(r => !r.item.hidden).length;
    const empty = document.getElementById('empty');

    setText(document.getElementById('count'), visible === boxes.size
        ? `${boxes.size} ${boxes.size === 1 ? 'box' : 'boxes'}` : `${visible} of ${boxes.size} boxes`);
    document.getElementById('count').hidden = !isLoaded;
    empty.hidden = !boxes.size || visible > 0;
}

function showList() {
    for (const box of boxes.values())
        showRow(box);
    for (const [id, row] of rows)
        if (!boxes.has(id)) {
            row.item.remove();
            rows.delete(id);
        }
    showCounts();
}

filter.addEventListener('input', showList);
setInterval(showList, 30000); /* the ages */

/* The arrow keys walk through the list. */
document.querySelector('nav.list').addEventListener('keydown', e => {
    const links = [...list.querySelectorAll('li:not([hidden]) a')];
    const at = links.indexOf(document.activeElement);
    const step = {ArrowDown: 1, ArrowUp: -1}[e.key];

    if (!step || !links.length)
        return;
    e.preventDefault();
    (links[at + step] || (at + step < 0 ? filter : links[at])).focus();
});

/* ---- what the daemon says ---- */

function setBox(box) {
    boxes.set(box.id, box);
    showRow(box);
    showCounts();
    if (shown?.id === box.id)
        shown.view?.update(box);
    else if (!shown && isLoaded)
        route();
}

function dropBox(id) {
    if (!boxes.delete(id))
        return;
    showList();
    if (shown?.id === id)
        showGone();
    else if (!shown)
        route();
}

async function refresh(id) {
    refreshing.delete(id);
    try {
        setBox(await call('GET', boxPath(id)));
    } catch (e) {
        if (e.status === 404)
            dropBox(id);
        /* else the stream breaks as well, and all is read again */
    }
}

export function refreshSoon(id) {
    if (!refreshing.has(id))
        refreshing.set(id, setTimeout(refresh, REFRESH_MS, id));
}

function onEvent(e) {
    const data = JSON.parse(e.data);

    lastId = e.id || lastId;
    if (e.event === 'box') {
        setBox(data);
        return;
    }
    if (shown?.id === data.box.id)
        shown.view?.event?.(data);
    refreshSoon(data.box.id);
}

async function readBoxes() {
    const all = [];
    let cursor = null;

    do {
        const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : '';
        const answer = await call('GET', `/v1/boxes${query}`);

        all.push(...answer.boxes);
        cursor = answer.next_cursor;
    } while (cursor);
    return all;
}

/* The link is there for an admin alone. A failure breaks the stream as well, and all is read again. */
async function readAccess() {
    try {
        access = await call('GET', '/v1/access');
    } catch {
        access = null;
    }
    accessLink.hidden = access?.scope !== 'admin';
}

let isAsking = false; /* for a token */

/* The list is read again at each connection: events say what changed, not what there is. */
async function onOpen(isPolled) {
    const [all] = await Promise.all([readBoxes(), readAccess()]);
    const ids = new Set(all.map(b => b.id));
    const isFirst = !isLoaded;

    for (const id of [...boxes.keys()])
        if (!ids.has(id))
            dropBox(id);
    isLoaded = true;
    all.forEach(setBox);
    showList();
    closeGate();
    showConnection('live', isPolled ? 'Every 5 s' : 'Live');
    showBanner('');
    const before = shown;

    if (isFirst || !before || before.id === ACCESS) /* the token may be another one */
        route();
    if (before && shown === before)
        shown.view?.reconnected?.();
}

function showConnection(kind, text) {
    const place = document.getElementById('connection');

    place.dataset.kind = kind;
    setText(place, text);
}

const banner = document.getElementById('banner');
let bannerTimer = null;

/* A restart of the daemon is over before it shows. */
function showBanner(text) {
    clearTimeout(bannerTimer);
    if (!text)
        banner.hidden = true;
    else
        bannerTimer = setTimeout(() => {
            setText(banner, text);
            banner.hidden = false;
        }, banner.hidden ? BANNER_MS : 0);
}

function onDown(error) {
    if (error?.status === 401) {
        showConnection('down', 'Token needed');
        showBanner('');
        return;
    }
    showConnection('down', 'Reconnecting…');
    if (isLoaded)
        showBanner('The daemon does not answer. What is shown may be old; this page tries again by itself.');
    else
        view.replaceChildren(blank('The daemon does not answer',
            'This page tries again by itself. Is "bellhop daemon" running?'));
}

/* ---- the token ---- */

function askToken(message) {
    if (isAsking)
        return;
    isAsking = true;
    const input = h('input', {type: 'password', name: 'token', autocomplete: 'off', required: true,
        spellcheck: 'false', autofocus: true});
    const form = h('form', {class: 'token'}, h('h2', {}, 'A token is needed'),
        h('p', {class: 'muted'}, `${sentence(message)} "bellhop token create" makes one. It stays in ` +
            'this tab until the tab is closed.'),
        h('label', {class: 'field'}, h('span', {}, 'Token'), input),
        h('div', {class: 'buttons'}, h('button', {type: 'submit', class: 'primary'}, 'Continue')));

    form.addEventListener('submit', e => {
        e.preventDefault();
        setToken(input.value.trim());
        closeGate();
        if (!isLoaded)
            view.replaceChildren(blank('One moment', 'The boxes are on their way.'));
        document.dispatchEvent(new Event('bellhop-retry'));
        /* The stream of events may be open still. */
        readAccess().then(() => {
            route();
            shown?.view.reconnected();
        });
    });
    gate.replaceChildren(form);
    view.hidden = true;
    input.focus();
}

/* What was shown is there again, with a text that was being written. */
function closeGate() {
    isAsking = false;
    gate.replaceChildren();
    view.hidden = false;
}

document.addEventListener('bellhop-token', e => askToken(e.detail));

/* ---- the route ---- */

function leave() {
    shown?.view?.leave();
    shown = null;
}

function showGone() {
    leave();
    history.replaceState(null, '', '#/');
    document.body.classList.remove('has-view');
    view.replaceChildren(blank('This box is gone', 'It was removed. Its record and its events are kept: ' +
        '"bellhop history" shows them.', h('p', {}, h('a', {href: '#/'}, 'All boxes'))));
}

function showStart() {
    const running = [...boxes.values()].filter(b => b.state === 'running').length;

    view.replaceChildren(boxes.size
        ? blank('Pick a box', `${running} of ${boxes.size} ${running === 1 ? 'is' : 'are'} running.`)
        : blank('No boxes yet', 'A box is a sandbox for a coding agent, with your project in it.',
            button('New box', openNewBox, {class: 'primary'}),
            h('p', {class: 'muted'}, 'Or on the command line: ', h('code', {}, 'bellhop up'))));
}

/* Nothing of it is asked for by a page whose token is no admin's. */
function showAccess() {
    if (access?.scope !== 'admin') {
        leave();
        view.replaceChildren(blank('This takes a token with the scope admin', access
            ? `The scope of this page's token is ${access.scope}.` : 'The daemon did not say what this page may do.',
        h('p', {}, h('a', {href: '#/'}, 'All boxes'))));
    } else if (shown?.id !== ACCESS) {
        leave();
        shown = {id: ACCESS, view: accessView(view, {boxes: () => [...boxes.values()], own: () => access.token})};
    }
}

function route() {
    const isAccess = location.hash === '#/access';
    const [, id, tab] = /^#\/box\/([^/]+)(?:\/(\w+))?$/.exec(location.hash) || [];
    const key = id && decodeURIComponent(id);
    const box = key && (boxes.get(key) || [...boxes.values()].find(b => b.name === key));

    if (!isLoaded || isAsking)
        return;
    document.body.classList.toggle('has-view', isAccess || Boolean(key));
    if (isAccess) {
        showAccess();
    } else if (!key) {
        leave();
        showStart();
    } else if (!box) {
        leave();
        shown = null;
        view.replaceChildren(blank('There is no such box', `No box has the id or name "${key}".`,
            h('p', {}, h('a', {href: '#/'}, 'All boxes'))));
    } else if (shown?.id === box.id) {
        shown.view.open(tab || 'overview');
    } else {
        leave();
        shown = {id: box.id};
        shown.view = boxView(view, box, {refresh: () => refreshSoon(box.id)});
        shown.view.open(tab || 'overview');
    }
    document.title = box ? `${box.name} – Bellhop` : isAccess ? 'Access – Bellhop' : 'Bellhop';
    if (isAccess)
        accessLink.setAttribute('aria-current', 'page');
    else
        accessLink.removeAttribute('aria-current');
    showList();
}

window.addEventListener('hashchange', () => {
    route();
    if (document.body.classList.contains('has-view'))
        main.focus({preventScroll: true});
});

async function openNewBox() {
    const box = await askNewBox();

    if (!box)
        return;
    notice(`The box ${box.name} is being made.`);
    setBox(box);
    location.hash = `#/box/${encodeURIComponent(box.id)}`;
}

document.getElementById('new-box').addEventListener('click', openNewBox);

/* A page that the browser keeps for "back" would hold connections, of which it has six for a server. */
const stop = new AbortController();

window.addEventListener('pagehide', () => {
    stop.abort();
    leave();
});
window.addEventListener('pageshow', e => e.persisted && location.reload());

follow('/v1/events', {
    signal: stop.signal,
    headers: () => (lastId && isLoaded ? {'Last-Event-ID': lastId} : {}),
    onEvent,
    onOpen,
    onDown,
});
