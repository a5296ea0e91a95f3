/*
 * files: the files of a box: browse, view, edit, upload, download. A file is written back only if it is still the one
 * that was read (If-Match), and an upload replaces nothing unless the person says so (If-None-Match).
 */
import {boxPath, filePath, request, rpc} from './api.js';
import {act, ask, blank, bytes, button, h, notice, saveBlob, sentence, setText, time} from './dom.js';

const TEXT_MAX = 2 * 1024 * 1024; /* larger files are only downloaded */
const LIST_MAX = 1000;

const kept = new Map(); /* box id -> the folder that was open last */

function parent(path) {
    return path.replace(/\/[^/]+\/?$/, '') || '/';
}

function join(folder, name) {
    return folder === '/' ? `/${name}` : `${folder}/${name}`;
}

/* A name that is not UTF-8 travels as {"b64"}, which a path of a URL cannot have. */
function entryName(entry) {
    return typeof entry.name === 'string' ? entry.name : null;
}

function missing(place, box, e, again) {
    place.replaceChildren(e.isMissingRoute
        ? blank('Files are not served here', `This daemon has no gateway to the files of boxes. On the command line: ` +
            `bellhop get ${box.name} :/path DIR`)
        : blank('The files could not be read', sentence(e), button('Try again', again)));
}

/* ---- one file ---- */

async function readText(box, path) {
    const response = await request('GET', filePath(box.id, path));
    const data = await response.arrayBuffer();
    const etag = response.headers.get('ETag');

    try {
        return {etag, text: new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(data)};
    } catch {
        return {etag, text: null};
    }
}

async function download(box, path) {
    const response = await request('GET', filePath(box.id, path));

    saveBlob(await response.blob(), path.split('/').pop());
}

function editor(place, box, path, close) {
    const area = h('textarea', {class: 'editor', spellcheck: 'false', autocapitalize: 'off', wrap: 'off',
        'aria-label': `Content of ${path}`});
    const status = h('p', {class: 'muted small', role: 'status'}, 'Reading the file…');
    const conflict = h('div', {class: 'conflict', role: 'alert', hidden: true});
    let etag = null;
    let saved = '';

    const isChanged = () => area.value !== saved;
    const save = button('Save', () => act(null, write), {class: 'primary', disabled: true});
    let isSaving = false;
    const back = button('Back', async () => {
        if (!isChanged() || await ask({title: 'Leave without saving?', action: 'Leave', kind: 'danger',
            text: `The changes to ${path} are not saved.`}))
            close();
    }, {'aria-label': 'Back to the folder'});

    function show() {
        save.disabled = isSaving || !isChanged();
        setText(status, isSaving ? 'Saving…' : isChanged() ? 'Changed, not saved.' : 'As in the box.');
    }

    async function read() {
        const file = await readText(box, path);

        conflict.hidden = true;
        if (file.text === null) {
            place.replaceChildren(bar, blank('This is not text', 'The bytes are not UTF-8. Download the file to see them.'));
            return;
        }
        etag = file.etag;
        saved = area.value = file.text;
        if (area.value !== saved) {
            /* A text area keeps no carriage returns: what it shows could not be written back as it was. */
            area.readOnly = true;
            saved = area.value;
            show();
            setText(status, 'Read only: its lines end with CR LF, which an editor of a page would change.');
            return;
        }
        show();
    }

    /* navigator.clipboard is there only over TLS and at localhost. */
    function copy() {
        area.select();
        notice(document.execCommand('copy') ? 'The text is copied.' : 'The text is selected: copy it with Ctrl+C.');
    }

    function showConflict(e) {
        const isGone = e.detail.etag === undefined;

        conflict.hidden = false;
        conflict.replaceChildren(
            h('p', {}, h('strong', {}, isGone ? 'The file was removed in the box. '
                : 'The file has changed in the box since it was opened. '),
            'Nothing was overwritten. Your text is still here.'),
            h('div', {class: 'buttons'},
                button('Copy my text', copy),
                button('Load the file as it is in the box', e2 => act(e2.currentTarget, read))));
    }

    async function write() {
        const text = area.value;

        isSaving = true;
        show();
        try {
            const response = await request('PUT', filePath(box.id, path), {
                body: new TextEncoder().encode(text),
                headers: {'If-Match': etag, 'Content-Type': 'application/octet-stream'},
            });

            etag = response.headers.get('ETag') || etag;
            saved = text;
            conflict.hidden = true;
            notice(`${path} is saved.`);
        } catch (e) {
            if (e.status !== 412)
                throw e;
            showConflict(e);
        } finally {
            isSaving = false;
            show();
        }
    }

    area.addEventListener('input', show);
    area.addEventListener('keydown', e => {
        if ((e.ctrlKey || e.metaKey) && e.key === 's') {
            e.preventDefault();
            if (!save.disabled)
                act(null, write);
        }
    });
    const bar = h('div', {class: 'filebar'}, back, h('code', {class: 'path'}, path),
        button('Download', e => act(e.currentTarget, () => download(box, path))), save);

    place.replaceChildren(bar, conflict, area, status);
    area.focus();
    act(null, read);
    return {isChanged};
}

/* ---- uploads ---- */

async function uploadOne(box, folder, file) {
    const path = filePath(box.id, join(folder, file.name));
    const put = headers => request('PUT', path, {body: file, headers});

    try {
        await put({'If-None-Match': '*'});
    } catch (e) {
        if (e.status !== 412)
            throw e;
        if (!await ask({title: `Replace ${file.name}?`, action: 'Replace', kind: 'danger',
            text: `There is a file of this name in ${folder} already.`}))
            return false;
        await put({});
    }
    return true;
}

async function upload(box, folder, files) {
    let n = 0;

    for (const file of files)
        n += await uploadOne(box, folder, file) ? 1 : 0;
    if (n)
        notice(n === 1 ? `1 file is uploaded to ${folder}.` : `${n} files are uploaded to ${folder}.`);
}

/* ---- the folder ---- */

function entryRow(box, folder, entry, open) {
    const name = entryName(entry);
    const isFolder = entry.type === 'directory';
    const path = name === null ? null : join(folder, name);
    const label = name ?? '(a name that is not UTF-8)';
    const opens = path && (isFolder || entry.type === 'file' || entry.type === 'symlink');

    return h('tr', {},
        h('td', {class: 'wide'}, opens ? button(isFolder ? `${label}/` : label, () => open(path, entry),
            {class: `entry ${isFolder ? 'folder' : ''}`}) : label,
        entry.target ? h('span', {class: 'muted small'}, ` → ${entry.target}`) : null),
        h('td', {class: 'number'}, isFolder ? '' : bytes(entry.size)),
        h('td', {class: 'muted when'}, entry.mtime ? time(Date.parse(entry.mtime)) : ''),
        h('td', {class: 'muted mode'}, entry.mode || ''));
}

export function filesPanel(place, box) {
    let folder = kept.get(box.id) || box.workdir || '/';
    let open = null; /* the editor */
    const pathInput = h('input', {name: 'path', value: folder, 'aria-label': 'Folder', spellcheck: 'false',
        autocomplete: 'off'});
    const body = h('tbody', {});
    const status = h('p', {class: 'muted small', role: 'status'});
    const picker = h('input', {type: 'file', multiple: true, class: 'hidden', tabindex: '-1', 'aria-hidden': 'true'});
    const view = h('div', {class: 'dropzone'},
        h('form', {class: 'filebar'}, button('Up', () => go(parent(folder))), pathInput,
            button('Upload…', () => picker.click()), button('Download', e => act(e.currentTarget, archive)), picker),
        h('div', {class: 'scroll'}, h('table', {class: 'files'}, h('thead', {}, h('tr', {},
            ...['Name', 'Size', 'Changed', 'Mode'].map(t => h('th', {scope: 'col'}, t)))), body)),
        status);

    async function archive() {
        const query = new URLSearchParams({path: folder, format: 'tar.gz'});
        const response = await request('GET', `${boxPath(box.id, 'archive')}?${query}`);

        saveBlob(await response.blob(), `${folder.split('/').pop() || box.name}.tar.gz`);
    }

    async function read() {
        const wanted = folder;
        const answer = await rpc(box.id, 'Fs', 'List',
            {path: wanted, limit: LIST_MAX, sort: 'name', directories_first: true}, {quiet: true});

        if (wanted !== folder)
            return;
        kept.set(box.id, folder);
        pathInput.value = folder;
        body.replaceChildren(...answer.entries.map(e => entryRow(box, folder, e, openEntry)));
        setText(status, !answer.entries.length ? 'This folder is empty. Drop files here to upload them.'
            : answer.next ? `The first ${LIST_MAX} entries. Drop files here to upload them.`
                : 'Drop files here to upload them.');
    }

    async function go(path) {
        const before = folder;

        folder = path;
        try {
            await read();
        } catch (e) {
            folder = before;
            pathInput.value = before;
            if (e.isMissingRoute || !body.children.length)
                missing(place, box, e, () => {
                    place.replaceChildren(view);
                    go(path);
                });
            else
                notice(sentence(e), 'error');
        }
    }

    function openEntry(path, entry) {
        if (entry.type === 'directory') {
            go(path);
        } else if (entry.size > TEXT_MAX) {
            act(null, () => download(box, path));
            notice(`${path} is ${bytes(entry.size)}: it is downloaded, not shown.`);
        } else {
            open = editor(place, box, path, () => {
                open = null;
                place.replaceChildren(view);
                act(null, read);
            });
        }
    }

    const send = files => act(null, async () => {
        await upload(box, folder, files);
        await read();
    });

    picker.addEventListener('change', () => {
        send([...picker.files]);
        picker.value = '';
    });
    view.addEventListener('dragover', e => {
        e.preventDefault();
        view.classList.add('over');
    });
    view.addEventListener('dragleave', e => !view.contains(e.relatedTarget) && view.classList.remove('over'));
    view.addEventListener('drop', e => {
        e.preventDefault();
        view.classList.remove('over');
        send([...e.dataTransfer.files]);
    });
    view.querySelector('form').addEventListener('submit', e => {
        e.preventDefault();
        go(pathInput.value.trim().replace(/(.)\/+$/, '$1') || '/');
    });
    place.replaceChildren(view);
    if (box.state === 'running' || box.state === 'paused')
        go(folder);
    else
        place.replaceChildren(blank('The box does not run', 'Start it to see its files.'));
    return {
        /* An open text is never thrown away by what happens to the box. */
        update: b => {
            const isNewlyUp = b.state === 'running' && box.state !== 'running' && !open;

            box = b;
            if (isNewlyUp) {
                place.replaceChildren(view);
                go(folder);
            }
        },
        leave: () => {
            if (open?.isChanged())
                notice('The text that was not saved is dropped.');
        },
    };
}
