/* ui - elements, words for numbers, and the few controls that pages share */

/* h('a.name', {href, onclick}, children…): an element. Text children become text, never markup. */
export function h(tag, props = {}, ...children) {
    const [name, ...classes] = tag.split('.');
    const el = document.createElement(name || 'div');
    if (classes.length)
        el.className = classes.join(' ');
    for (const [key, value] of Object.entries(props)) {
        if (value === undefined || value === null || value === false)
            continue;
        if (key.startsWith('on'))
            el.addEventListener(key.slice(2), value);
        else if (key === 'style')
            for (const [k, v] of Object.entries(value))
                el.style.setProperty(k, v);
        else
            el.setAttribute(key, value === true ? '' : value);
    }
    el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
    return el;
}

/* Change text only where it differs: selection and screen readers are left in peace. */
export function text(el, value) {
    const s = value === null || value === undefined ? '' : String(value);
    if (el.textContent !== s)
        el.textContent = s;
    return el;
}

export const ENDED = ['succeeded', 'failed', 'cancelled'];
export const WAITING = ['queued', 'suspended', 'recovering'];
export const isEnded = (job) => ENDED.includes(job.state);

/* Of a job that has ended: the devices of its last attempt; 0: it never had any. */
export const devicesHad = ({ layout: l }) => (l ? l.tp * l.pp * l.cp * l.dp : 0);
export const isWaiting = (job) => WAITING.includes(job.state);

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export function count(n) {
    if (n === null || n === undefined)
        return '–';
    return Math.abs(n) < 100000 ? whole.format(n)
        : new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(n);
}

export function loss(v) {
    return v === null || v === undefined ? '–' : Math.abs(v) >= 1000 ? v.toExponential(2) : v.toFixed(v < 0.1 ? 4 : 3);
}

export function bytes(n) {
    if (n === null || n === undefined)
        return '–';
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let i = 0;
    for (; n >= 1024 && i < units.length - 1; i++)
        n /= 1024;
    return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function duration(seconds) {
    if (seconds === null || seconds === undefined || !isFinite(seconds))
        return '–';
    const s = Math.max(0, Math.round(seconds));
    if (s < 60)
        return `${s} s`;
    if (s < 3600)
        return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, '0')} s`;
    if (s < 86400)
        return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, '0')} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

export function ago(at) {
    if (!at)
        return '–';
    const s = (Date.now() - Date.parse(at)) / 1000;
    if (s < 5)
        return 'now';
    if (s < 60)
        return `${Math.floor(s)} s ago`;
    if (s < 3600)
        return `${Math.floor(s / 60)} min ago`;
    if (s < 86400)
        return `${Math.floor(s / 3600)} h ago`;
    return `${Math.floor(s / 86400)} d ago`;
}

export function clock(at) {
    return at ? new Date(at).toLocaleTimeString('en-GB') : '–';
}

/* The time of day, with the day when that is not today. */
export function when(at) {
    const day = at && new Date(at).toDateString() !== new Date().toDateString()
        ? new Date(at).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' }) + ' ' : '';
    return day + clock(at);
}

export const fullTime = (at) => (at ? new Date(at).toLocaleString('en-GB') : '');

/* "tp2 · pp2 · dp1" without the ones. */
export function layout(l) {
    if (!l)
        return '';
    const parts = ['tp', 'pp', 'cp', 'dp'].filter((k) => l[k] > 1).map((k) => `${k}${l[k]}`);
    return parts.join(' · ');
}

/* Unit and number stay together. */
export const ms = (x) => `${Number(x.toPrecision(3))}\u00a0ms`;
export const percentOff = (x) => `${Math.abs(x).toFixed(0)}\u00a0% too ${x < 0 ? 'low' : 'high'}`; /* what was predicted */

export const pill = (state) => h(`span.pill.is-${state}`, {}, h('span.dot', { 'aria-hidden': 'true' }), state);

export function setPill(el, state) {
    const name = `pill is-${state}`;
    if (el.className !== name) {
        el.className = name;
        el.lastChild.textContent = state;
    }
}

export function bar(label) {
    const fill = h('span.fill');
    const el = h('span.bar', { role: 'progressbar', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 100 }, fill);
    el.set = (share, state) => {
        const percent = Math.max(0, Math.min(100, share * 100));
        fill.style.width = `${percent}%`;
        el.setAttribute('aria-valuenow', Math.round(percent));
        el.className = `bar is-${state}`;
    };
    return el;
}

/* A stable, quiet colour of a job: neighbours in number differ clearly. */
export function jobHue(id) {
    return (Number(String(id).slice(1)) * 137.5 + 150) % 360;
}

/* Slots of a node as squares; a busy one links to its job. */
export function slotGrid(node) {
    return h('ul.slots', { 'aria-label': `devices of ${node.id}` }, node.slots.map((s) => {
        const words = `device ${s.slot}, ${s.class}: ${s.job ? `${s.job}${s.rank !== null && s.rank !== undefined
            ? ` rank ${s.rank}` : ''}` : s.state}`;
        return h('li', {}, s.job
            ? h('a.slot.busy', { href: `#/jobs/${s.job}`, title: words, 'aria-label': words, 'data-job': s.job,
                style: { '--hue': jobHue(s.job) } })
            : h(`span.slot.${s.state}`, { title: words, role: 'img', 'aria-label': words }));
    }));
}

/* What is too high for its place is scrolled, by the keyboard too. */
export const scroll = (label, ...content) => h('.scroll', { tabindex: '0', role: 'region', 'aria-label': label }, ...content);

export function empty(title, ...more) {
    return h('.empty', {}, h('p.empty-title', {}, title), ...more);
}

/* A line to type, with a button that copies it. */
export function commandLine(line) {
    const button = h('button.plain', { type: 'button', onclick: async () => {
        try {
            await navigator.clipboard.writeText(line);
            text(button, 'Copied');
        } catch {
            text(button, 'Select and copy');
        }
        setTimeout(() => text(button, 'Copy'), 2000);
    } }, 'Copy');
    return h('.command', {}, h('code', {}, line), button);
}

export function problemBox(e, again) {
    return h('.problem', { role: 'alert' }, h('strong', {}, 'This did not work. '), sentence(e.message),
        again && h('button', { type: 'button', onclick: again }, 'Try again'));
}

export const sentence = (s) => s.charAt(0).toUpperCase() + s.slice(1) + (/[.!?]$/.test(s) ? '' : '.');

export function toast(words, kind = 'info') {
    const el = h(`.toast.${kind}`, {}, words);
    document.getElementById('toasts').append(el);
    setTimeout(() => el.remove(), kind === 'error' ? 10000 : 4000);
}

/* Ask before something that cannot be undone. Resolves to true or false. */
export function confirm(title, words, verb, dangerous) {
    return new Promise((resolve) => {
        const dialog = h('dialog', { 'aria-labelledby': 'confirm-title' },
            h('form', { method: 'dialog' },
                h('h2', { id: 'confirm-title' }, title), h('p', {}, words),
                h('.buttons', {}, h('button', { value: 'no', type: 'submit', autofocus: dangerous }, 'Back'),
                    h(dangerous ? 'button.danger' : 'button.primary', { value: 'yes', type: 'submit', autofocus: !dangerous }, verb))));
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(dialog.returnValue === 'yes');
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}
