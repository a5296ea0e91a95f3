/*
 * dom: elements, dialogs, notices and the words for numbers. Text of boxes comes in as text nodes only: nothing here
 * parses HTML.
 */

/* h('button', {class: 'x', onclick: f}, 'text', child): null children are left out. */
export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);

    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false)
            continue;
        if (name.startsWith('on'))
            element.addEventListener(name.slice(2), value);
        else
            element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
    return element;
}

/* Sets a text only if it differs, so that selections and readers are left alone. */
export function setText(element, text) {
    if (element.textContent !== text)
        element.textContent = text;
}

export function button(text, onclick, attributes = {}) {
    return h('button', {type: 'button', onclick, ...attributes}, text);
}

/* ---- notices ---- */

const NOTICE_MS = 6000;

export function notice(text, kind = 'info') {
    const list = document.getElementById('notices');
    const item = h('div', {class: `notice ${kind}`}, h('span', {}, text),
        button('Dismiss', () => item.remove(), {class: 'plain'}));

    list.append(item);
    while (list.children.length > 4)
        list.firstChild.remove();
    if (kind !== 'error')
        setTimeout(() => item.remove(), NOTICE_MS);
}

/* An error as a sentence. */
export function sentence(error) {
    const text = error?.message || String(error);

    return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

/* Runs an action of a button, which is disabled meanwhile; an error becomes a notice. */
export async function act(control, action) {
    if (control)
        control.disabled = true;
    try {
        return await action();
    } catch (e) {
        if (e.name !== 'AbortError')
            notice(sentence(e), 'error');
        return undefined;
    } finally {
        if (control?.isConnected)
            control.disabled = false;
    }
}

/* A panel's words when there is nothing, or when it failed. */
export function blank(title, text, ...more) {
    return h('div', {class: 'blank'}, h('h3', {}, title), h('p', {class: 'muted'}, text), ...more);
}

/* ---- dialogs ---- */

/*
 * Asks by a form in a modal dialog. fields: elements; read: form -> the answer; the promise gives undefined if it
 * is dismissed. submit(answer), if given, must succeed before the dialog closes; its error is shown there. cancel: null
 * where there is nothing to decide.
 */
export function ask({title, text, fields = [], action, kind = 'primary', cancel = 'Cancel', read, submit, check}) {
    return new Promise(resolve => {
        const problem = h('p', {class: 'problem', role: 'alert'});
        const go = h('button', {type: 'submit', class: kind}, action);
        const form = h('form', {method: 'dialog'},
            h('h2', {}, title), text ? h('p', {}, text) : null, ...fields, problem,
            h('div', {class: 'buttons'}, cancel && button(cancel, () => dialog.close()), go));
        const dialog = h('dialog', {'aria-label': title}, form);
        let answer;

        const update = () => {
            go.disabled = check ? !check(form) : false;
        };

        form.addEventListener('input', update);
        form.addEventListener('submit', async e => {
            e.preventDefault();
            const value = read ? read(form) : true;

            problem.textContent = '';
            go.disabled = true;
            try {
                await submit?.(value);
                answer = value;
                dialog.close();
            } catch (error) {
                problem.textContent = sentence(error);
                update();
            }
        });
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(answer);
        });
        document.body.append(dialog);
        update();
        dialog.showModal();
    });
}

/* A field whose text is to be taken elsewhere. navigator.clipboard is there only over TLS and at localhost. */
export function copyField(label, name, value) {
    const input = h('input', {id: `copy-${name}`, name, value, readonly: true, onfocus: e => e.currentTarget.select()});
    const copy = button('Copy', () => {
        input.focus();
        input.select();
        setText(copy, document.execCommand('copy') ? 'Copied' : 'Ctrl+C');
    }, {class: 'copy'});

    return h('div', {class: 'field'}, h('label', {for: `copy-${name}`}, label),
        h('div', {class: 'with-button'}, input, copy));
}

export function field(label, control, hint) {
    return h('label', {class: 'field'}, h('span', {}, label), control,
        hint ? h('span', {class: 'muted small'}, hint) : null);
}

/* ---- words for numbers ---- */

export function bytes(n) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let i = 0;

    if (!Number.isFinite(n))
        return '–';
    for (; n >= 1024 && i < units.length - 1; i++)
        n /= 1024;
    return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function duration(ms) {
    const s = Math.max(0, Math.round(ms / 1000));
    const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'],
        [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']];
    const first = parts.findIndex(p => p[0]);

    if (first < 0)
        return '0 s';
    return parts.slice(first, first + (first === 3 ? 1 : 2)).filter(p => p[0])
        .map(p => p.join(' ')).join(' ');
}

/* A minute's fineness: lists change as seldom as that. */
export function age(ms) {
    return ms < 60000 ? 'under a minute' : duration(Math.floor(ms / 60000) * 60000);
}

export function time(ms) {
    return ms > 0 ? new Date(ms).toLocaleString(undefined,
        {dateStyle: 'medium', timeStyle: 'medium'}) : '–';
}

/* Gives a blob to the person as a file. */
export function saveBlob(blob, name) {
    const url = URL.createObjectURL(blob);
    const link = h('a', {href: url, download: name});

    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
}
