/*
 * admin: who may use the daemon, and how much: tokens, quotas of owners, and the record of calls. For tokens with the
 * scope admin alone: app.js opens it for no other one.
 */
import {call} from './api.js';
import {act, ask, bytes, button, blank, copyField, field, h, notice, sentence, setText, time} from './dom.js';

const POLL_MS = 5000; /* of tokens, quotas and their use: commands change them, too */
const CALLS_SHOWN = 100;
const DAY_MS = 86400000;
const GIB = 2 ** 30;
const SCOPES = [['use', 'use: make and use boxes'], ['read', 'read: see boxes and events'],
    ['admin', 'admin: everything, this page included']];
const LIFETIMES = [[30 * DAY_MS, '30 days'], [3600000, 'an hour'], [DAY_MS, 'a day'], [365 * DAY_MS, 'a year'],
    [0, 'until it is revoked']];
const NAME = {autocomplete: 'off', spellcheck: 'false', maxlength: '64', pattern: '[A-Za-z0-9._@\\-]+',
    title: 'letters, digits and . _ @ -'};

/* ---- tables ---- */

/*
 * A table whose rows stay the same elements while their texts change, so that a focus and a selection are left alone.
 * columns: their titles; key(item), cells(item): a text for each column; buttons(get): those of a row. The narrow page
 * shows a row as a list with the titles in front.
 */
function liveTable(className, {columns, key, cells, buttons, empty}) {
    const rows = new Map();
    const body = h('tbody', {});
    const titles = buttons ? [...columns, ''] : columns;
    const nothing = h('p', {class: 'muted'}, empty);
    const table = h('div', {class: 'scroll'}, h('table', {class: `cards ${className}`},
        h('thead', {}, h('tr', {}, titles.map(t => h('th', {scope: 'col', 'aria-label': t ? null : 'Actions'}, t)))),
        body));

    function newRow(item) {
        const row = {item, cells: columns.map(t => h('td', {'data-label': t}))};

        row.element = h('tr', {}, row.cells, buttons && h('td', {class: 'row-buttons'}, buttons(() => row.item)));
        return row;
    }

    function showRow(item, i) {
        const row = rows.get(key(item)) || newRow(item);

        rows.set(key(item), row);
        row.item = item;
        cells(item).forEach((text, n) => {
            setText(row.cells[n], text);
            row.cells[n].classList.toggle('is-empty', !text);
        });
        if (body.children[i] !== row.element)
            body.insertBefore(row.element, body.children[i] || null);
    }

    return {
        element: h('div', {}, table, nothing),
        show(items) {
            const keys = new Set(items.map(key));

            for (const [k, row] of rows)
                if (!keys.has(k)) {
                    row.element.remove();
                    rows.delete(k);
                }
            items.forEach(showRow);
            table.hidden = !items.length;
            nothing.hidden = !table.hidden;
        },
    };
}

/* The button that had the focus may have gone with its row. */
function keepFocus(place) {
    if (document.activeElement === document.body)
        place.focus();
}

/* ---- tokens ---- */

function options(rows) {
    return rows.map(([value, label]) => h('option', {value}, label));
}

async function askToken() {
    let made = null;

    await ask({
        title: 'New token',
        action: 'Make the token',
        fields: [
            field('Name', h('input', {name: 'name', placeholder: 'for whom or what', ...NAME})),
            field('Scope', h('select', {name: 'scope'}, options(SCOPES))),
            field('Owner', h('input', {name: 'owner', placeholder: 'of all boxes', ...NAME}),
                'The token sees the boxes of this owner alone.'),
            field('It is valid for', h('select', {name: 'time'}, options(LIFETIMES))),
        ],
        read: f => {
            const body = {scope: f.elements.scope.value, for_ms: Number(f.elements.time.value)};

            for (const name of ['name', 'owner'])
                if (f.elements[name].value.trim())
                    body[name] = f.elements[name].value.trim();
            return body;
        },
        submit: async json => {
            made = await call('POST', '/v1/tokens', {json});
        },
    });
    return made;
}

function tellToken(made) {
    return ask({
        title: made.name ? `The token ${made.name}` : 'The new token',
        text: 'Copy it now: it is shown once, and the daemon does not keep it.',
        fields: [copyField('Token', 'new-token', made.token)],
        action: 'Done',
        cancel: null,
    });
}

function nameOf(token) {
    return token.name || token.id;
}

function askRevoke(token, isOwn) {
    return ask({
        title: `Revoke ${nameOf(token)}?`,
        text: isOwn ? 'This page uses it, and asks for another one then. This cannot be undone.'
            : 'Its users are refused from now on, and their streams and terminals end. This cannot be undone.',
        action: 'Revoke the token',
        kind: 'danger',
        submit: () => call('DELETE', `/v1/tokens/${encodeURIComponent(token.id)}`),
    });
}

function expiryText(token) {
    if (!token.expires_ms)
        return 'never';
    return token.expires_ms <= Date.now() ? `expired ${time(token.expires_ms)}` : time(token.expires_ms);
}

function tokenTable(own, read) {
    return liveTable('tokens', {
        columns: ['Token', 'Scope', 'Owner', 'Expires', 'Last used', 'Made'],
        empty: 'No tokens: the daemon can be used by its unix socket alone.',
        key: t => t.id,
        cells: t => [t.id === own() ? `${nameOf(t)} (of this page)` : nameOf(t), t.scope, t.owner || 'all boxes',
            expiryText(t), t.used_ms ? time(t.used_ms) : 'not yet', time(t.created_ms)],
        buttons: get => {
            const revoke = button('Revoke…', async () => {
                if (await askRevoke(get(), get().id === own()))
                    notice(`The token ${nameOf(get())} is revoked.`);
                read();
            }, {'aria-label': `Revoke ${nameOf(get())}`});

            return [revoke];
        },
    });
}

/* ---- quotas ---- */

function ownerOf(box) {
    return box.labels?.owner;
}

/* Use and bounds of each owner that has boxes, a token or a quota; as the daemon counts: boxes that are stopped too. */
function ownerRows(boxes, tokens, quotas) {
    const rows = new Map();
    const row = owner => {
        if (!rows.has(owner))
            rows.set(owner, {owner, quota: null, boxes: 0, cpu_millis: 0, memory_bytes: 0, disk_bytes: 0});
        return rows.get(owner);
    };

    for (const token of tokens)
        if (token.owner)
            row(token.owner);
    for (const quota of quotas)
        row(quota.owner).quota = quota;
    for (const box of boxes)
        if (ownerOf(box)) {
            const r = row(ownerOf(box));

            r.boxes++;
            for (const name of ['cpu_millis', 'memory_bytes', 'disk_bytes'])
                r[name] += box.options?.[name] || 0;
        }
    return [...rows.values()].sort((a, b) => (a.owner < b.owner ? -1 : 1));
}

function useText(row, name, words) {
    const bound = row.quota?.[name];

    return bound ? `${words(row[name])} of ${words(bound)}` : words(row[name]);
}

function boundField(label, name, value, step) {
    return field(label, h('input', {name, type: 'number', min: '0', step, placeholder: 'no bound', value: value || null}));
}

/* row null: of an owner that is typed in. */
function askQuota(row) {
    const q = row?.quota || {};
    const bound = (f, name, unit) => Math.round(Number(f.elements[name].value || 0) * unit);

    return ask({
        title: row ? `Quota of ${row.owner}` : 'Quota of an owner',
        text: 'The bounds are for all boxes of the owner together. Boxes that are there stay.',
        action: 'Set the quota',
        fields: [
            row ? null : field('Owner', h('input', {name: 'owner', required: true, ...NAME})),
            h('div', {class: 'pair'}, boundField('Boxes', 'boxes', q.boxes, '1'),
                boundField('Processors', 'cpus', q.cpu_millis / 1000, 'any')),
            h('div', {class: 'pair'}, boundField('Memory, GiB', 'memory', q.memory_bytes / GIB, 'any'),
                boundField('Disk, GiB', 'disk', q.disk_bytes / GIB, 'any')),
        ],
        check: f => ['boxes', 'cpus', 'memory', 'disk'].some(name => Number(f.elements[name].value) > 0),
        read: f => ({
            owner: row ? row.owner : f.elements.owner.value.trim(),
            json: {boxes: bound(f, 'boxes', 1), cpu_millis: bound(f, 'cpus', 1000),
                memory_bytes: bound(f, 'memory', GIB), disk_bytes: bound(f, 'disk', GIB)},
        }),
        submit: ({owner, json}) => call('PUT', `/v1/quotas/${encodeURIComponent(owner)}`, {json}),
    });
}

function askNoQuota(row) {
    return ask({
        title: `Remove the quota of ${row.owner}?`,
        text: 'Its boxes stay, and new ones are no longer bounded.',
        action: 'Remove the quota',
        kind: 'danger',
        submit: () => call('DELETE', `/v1/quotas/${encodeURIComponent(row.owner)}`),
    });
}

function quotaTable(read) {
    return liveTable('quotas', {
        columns: ['Owner', 'Boxes', 'Processors', 'Memory', 'Disk'],
        empty: 'No owners: a token or a box with the label owner=NAME has one.',
        key: r => `${r.owner}\n${Boolean(r.quota)}`, /* the buttons differ */
        cells: r => [r.owner, useText(r, 'boxes', String), useText(r, 'cpu_millis', n => String(n / 1000)),
            useText(r, 'memory_bytes', bytes), useText(r, 'disk_bytes', bytes)],
        buttons: get => {
            const {owner, quota} = get();
            const change = button(quota ? 'Change…' : 'Set…', async () => {
                await askQuota(get());
                read();
            }, {'aria-label': `${quota ? 'Change' : 'Set'} the quota of ${owner}`});
            const remove = button('Remove…', async () => {
                await askNoQuota(get());
                read();
            }, {'aria-label': `Remove the quota of ${owner}`});

            return quota ? [change, remove] : [change];
        },
    });
}

/* ---- the record of calls ---- */

/* Commands have exit statuses, calls have HTTP's. */
function resultText(c) {
    return c.verb === 'bellhop' ? `exit ${c.status}` : String(c.status);
}

function callTable() {
    return liveTable('calls', {
        columns: ['Call', 'By', 'Result', 'When', 'From'],
        empty: 'No call has changed anything yet.',
        key: c => c.seq,
        cells: c => [`${c.verb} ${c.target}`, c.owner ? `${c.who}, owner ${c.owner}` : c.who, resultText(c),
            time(c.time_ms), c.from],
    });
}

function recordSection() {
    const status = h('p', {class: 'muted small', role: 'status'});
    const table = callTable();

    function show(calls) {
        table.show([...calls].reverse());
        say(calls.length === CALLS_SHOWN ? `The newest ${CALLS_SHOWN} calls, newest first.` : 'Newest first.', false);
    }

    async function read() {
        show((await call('GET', `/v1/audit?last=${CALLS_SHOWN}`)).calls);
    }

    function say(text, isProblem) {
        setText(status, text);
        status.classList.toggle('problem', isProblem);
    }

    const verify = button('Verify', e => act(e.currentTarget, async () => {
        say('Checking the chain…', false);
        try {
            const {calls} = await call('POST', '/v1/audit/verify', {json: {}});

            say(`The chain is whole: ${calls} ${calls === 1 ? 'call' : 'calls'}.`, false);
        } catch (error) {
            say(sentence(error), true);
        }
    }));
    const again = button('Read again', e => act(e.currentTarget, read));

    return {
        element: h('section', {}, sectionHead('Record of calls', verify, again), status, table.element),
        read,
    };
}

/* ---- the view ---- */

function sectionHead(title, ...buttons) {
    return h('div', {class: 'section-head'}, h('h2', {}, title), h('div', {class: 'buttons'}, buttons));
}

/* boxes(): all that the page knows; own(): the id of the page's token, or "". */
export function accessView(place, {boxes, own}) {
    const newToken = button('New token…', async () => {
        const made = await askToken();

        if (!made)
            return;
        read();
        await tellToken(made);
        keepFocus(newToken);
    }, {class: 'primary'});
    const newQuota = button('Set a quota…', async () => {
        await askQuota(null);
        read();
    });
    const tokens = tokenTable(own, readAfterChange(() => newToken));
    const quotas = quotaTable(readAfterChange(() => newQuota));
    const record = recordSection();
    const panel = h('div', {class: 'panel access'},
        h('section', {}, sectionHead('Tokens', newToken), tokens.element),
        h('section', {}, sectionHead('Owners and quotas', newQuota), quotas.element),
        record.element);
    const body = h('div', {}, blank('One moment', 'Tokens and quotas are on their way.'));
    let known = null; /* {tokens, quotas} as last read */
    let isLeft = false;

    place.replaceChildren(h('a', {class: 'back', href: '#/'}, '‹ All boxes'),
        h('div', {class: 'head'}, h('h1', {}, 'Access')), body);

    function show() {
        tokens.show(known.tokens);
        quotas.show(ownerRows(boxes(), known.tokens, known.quotas));
    }

    async function readLists() {
        const [t, q] = await Promise.all([call('GET', '/v1/tokens'), call('GET', '/v1/quotas')]);

        known = {tokens: t.tokens, quotas: q.quotas};
        if (!isLeft)
            show();
    }

    /* All comes at once, so that no part pushes the next one down. */
    async function read() {
        try {
            await Promise.all([readLists(), record.read()]);
            if (panel.parentNode !== body && !isLeft)
                body.replaceChildren(panel);
        } catch (e) {
            if (panel.parentNode !== body)
                body.replaceChildren(blank('This part could not be shown', sentence(e)));
        }
    }

    function readAfterChange(control) {
        return async () => {
            await read();
            keepFocus(control());
        };
    }

    read();
    const timer = setInterval(() => !document.hidden && known && readLists().catch(() => {}), POLL_MS);

    return {
        reconnected: read,
        leave: () => {
            isLeft = true;
            clearInterval(timer);
        },
    };
}
