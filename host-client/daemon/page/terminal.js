/*
 * terminal: a shell in the box over a WebSocket: binary frames are its bytes both ways, text frames are control. Where
 * the daemon has no terminals, single commands are run instead.
 */
import {FitAddon} from './addon-fit.mjs';
import {Terminal} from './xterm.mjs';
import {boxPath, rpc, token} from './api.js';
import {blank, button, h, sentence, setText} from './dom.js';

const COMMAND_MS = 60000;

function colors() {
    return matchMedia('(prefers-color-scheme: dark)').matches
        ? {background: '#0e1012', foreground: '#e6e8ea', cursor: '#e6e8ea', selectionBackground: '#3a5a7f'}
        : {background: '#ffffff', foreground: '#1a1d21', cursor: '#1a1d21', selectionBackground: '#b9d4f3',
            black: '#1a1d21', red: '#b3261e', green: '#1a6b35', yellow: '#7a4b00', blue: '#0b5cad',
            magenta: '#8a2f8f', cyan: '#0b6570', white: '#565e68', brightBlack: '#565e68', brightRed: '#b3261e',
            brightGreen: '#1a6b35', brightYellow: '#7a4b00', brightBlue: '#0b5cad', brightMagenta: '#8a2f8f',
            brightCyan: '#0b6570', brightWhite: '#1a1d21'};
}

/* ---- single commands ---- */

function outputText(part) {
    if (!part)
        return '';
    const text = part.text ?? (part.b64 ? atob(part.b64) : '');
    const tail = part.tail?.text ?? '';

    return part.dropped_bytes ? `${text}\n… ${part.dropped_bytes} bytes were left out …\n${tail}` : text;
}

function commandPanel(place, box, why) {
    const log = h('pre', {class: 'log', tabindex: '0', 'aria-label': 'Output of the commands'});
    const input = h('input', {name: 'command', 'aria-label': 'Command', placeholder: 'Command',
        autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false'});
    const run = h('button', {type: 'submit', class: 'primary'}, 'Run');
    const form = h('form', {class: 'filebar'}, input, run);

    form.addEventListener('submit', async e => {
        e.preventDefault();
        const shell = input.value;

        if (!shell.trim() || run.disabled)
            return;
        input.value = '';
        run.disabled = true;
        log.append(`$ ${shell}\n`);
        try {
            const r = await rpc(box.id, 'Exec', 'Run', {shell, cwd: box.workdir, timeout_ms: COMMAND_MS});

            log.append(outputText(r.stdout) + outputText(r.stderr));
            if (r.exit.reason !== 'exited' || r.exit.code)
                log.append(`[${r.exit.reason}${r.exit.code === null ? '' : ` ${r.exit.code}`}]\n`);
        } catch (error) {
            log.append(error.isMissingRoute ? `[This daemon runs no commands. bellhop exec ${box.name} -- …]\n`
                : `[${sentence(error)}]\n`);
        }
        log.scrollTop = log.scrollHeight;
        run.disabled = false;
        input.focus();
    });
    place.replaceChildren(h('p', {class: 'muted small'}, why), log, form);
    input.focus();
}

/* ---- the terminal ---- */

function address(box, term) {
    const url = new URL(boxPath(box.id, 'terminal'), location.href);

    url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    url.searchParams.set('cols', term.cols);
    url.searchParams.set('rows', term.rows);
    return url;
}

export function terminalPanel(place, box) {
    const screen = h('div', {class: 'screen'});
    const status = h('p', {class: 'muted small', role: 'status'}, 'Connecting…');
    const again = button('Connect again', () => connect(), {hidden: true});
    const term = new Terminal({fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace', fontSize: 14,
        cursorBlink: false, scrollback: 5000, theme: colors(), screenReaderMode: false});
    const fit = new FitAddon();
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const onTheme = () => {
        term.options.theme = colors();
    };
    let socket = null;
    let isLeft = false;
    let ending = '';

    place.replaceChildren(screen, h('div', {class: 'filebar'}, status, again));
    term.loadAddon(fit);
    term.open(screen);
    fit.fit();
    const encoder = new TextEncoder();
    const send = data => socket?.readyState === WebSocket.OPEN && socket.send(data);
    const sendSize = () => send(JSON.stringify({resize: {cols: term.cols, rows: term.rows}}));
    const observer = new ResizeObserver(() => screen.clientWidth && fit.fit());

    /* A person without a mouse must be able to leave it. */
    term.attachCustomKeyEventHandler(e => {
        if (e.key !== 'F6' || !e.shiftKey)
            return true;
        e.preventDefault();
        if (e.type === 'keydown')
            document.querySelector('.tabs [aria-current]').focus();
        return false;
    });
    term.onData(text => send(encoder.encode(text)));
    term.onBinary(text => send(Uint8Array.from(text, c => c.charCodeAt(0))));
    term.onResize(sendSize);
    observer.observe(screen);
    dark.addEventListener('change', onTheme);

    function onControl({exit}) {
        if (exit)
            ending = exit.reason === 'exited' ? `with status ${exit.code}` : exit.reason;
    }

    function onClose(e, wasOpen) {
        if (isLeft)
            return;
        if (!wasOpen) {
            term.dispose();
            commandPanel(place, box, 'A terminal could not be opened here; each command runs on its own.');
            return;
        }
        setText(status, ending ? `The shell has ended, ${ending}.`
            : `The connection was lost${e.reason ? `: ${e.reason}` : ''}.`);
        again.hidden = false;
    }

    function connect() {
        const protocols = token() ? ['bellhop', `bellhop.token.${token()}`] : ['bellhop'];
        let wasOpen = false;

        ending = '';
        again.hidden = true;
        setText(status, 'Connecting…');
        socket = new WebSocket(address(box, term), protocols);
        socket.binaryType = 'arraybuffer';
        socket.addEventListener('open', () => {
            wasOpen = true;
            setText(status, 'Connected. All keys go to the terminal; Shift+F6 leaves it.');
            sendSize();
            term.focus();
        });
        socket.addEventListener('message', e => {
            if (typeof e.data !== 'string')
                term.write(new Uint8Array(e.data));
            else
                onControl(JSON.parse(e.data));
        });
        socket.addEventListener('close', e => onClose(e, wasOpen));
    }

    if (box.state === 'running' || box.state === 'paused')
        connect();
    else
        place.replaceChildren(blank('The box does not run', 'Start it to open a terminal.'));
    return {
        leave: () => {
            isLeft = true;
            socket?.close();
            observer.disconnect();
            dark.removeEventListener('change', onTheme);
            term.dispose();
        },
    };
}
