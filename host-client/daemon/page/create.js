/* create: the dialog that makes a box. */
import {call} from './api.js';
import {ask, field, h} from './dom.js';

function select(name, options) {
    return h('select', {name}, options.map(([value, label]) => h('option', {value}, label)));
}

async function optional(path) {
    try {
        return await call('GET', path);
    } catch {
        return {};
    }
}

/* A repeated request with the key makes no second box. Web pages have randomUUID() only over TLS. */
function newKey() {
    return [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('');
}

function bodyOf(form) {
    const body = {};

    for (const name of ['name', 'image', 'provider', 'agent']) {
        const value = form.elements[name].value.trim();

        if (value)
            body[name] = value;
    }
    if (form.elements.memory.value)
        body.memory_bytes = Number(form.elements.memory.value) * 2 ** 20;
    if (form.elements.minutes.value)
        body.timeout_ms = Number(form.elements.minutes.value) * 60000;
    return body;
}

/* Gives the box as it was requested; the page's events show how it comes up. */
export async function askNewBox() {
    const [info, images] = await Promise.all([optional('/v1/info'), optional('/v1/images')]);
    const providers = (info.providers || []).filter(p => p.usable).map(p => [p.name, `${p.name}: ${p.summary}`]);
    const key = newKey();
    let made = null;

    await ask({
        title: 'New box',
        action: 'Make the box',
        fields: [
            field('Name', h('input', {name: 'name', autocomplete: 'off', spellcheck: 'false', maxlength: '63',
                placeholder: 'chosen for you'})),
            field('Image', select('image', [['', 'The default'],
                ...(images.images || []).filter(i => i.built).map(i => [i.name, i.name])])),
            field('Coding agent', select('agent', [['none', 'None'], ['opencode', 'opencode'], ['pi', 'pi']])),
            field('Provider', select('provider', [['', 'The default'], ...providers])),
            h('div', {class: 'pair'},
                field('Memory, MiB', h('input', {name: 'memory', type: 'number', min: '64', step: '64',
                    placeholder: 'the default'})),
                field('Ends after, minutes', h('input', {name: 'minutes', type: 'number', min: '1',
                    placeholder: 'the default'}))),
        ],
        read: bodyOf,
        submit: async json => {
            made = await call('POST', '/v1/boxes?wait=false', {json, headers: {'Idempotency-Key': key}});
        },
    });
    return made;
}
