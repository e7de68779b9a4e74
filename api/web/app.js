/* app - the pages by the address after #, the token, the light or dark look */
import * as api from './api.js';
import { clusterPage } from './cluster.js';
import { comparePage } from './compare.js';
import { jobPage } from './job.js';
import { nodePage } from './node.js';
import { nodesPage } from './nodes.js';
import { noticesPage } from './notices.js';
import { overview } from './overview.js';
import * as store from './store.js';
import { submitPage } from './submit.js';
import { empty, h, text } from './ui.js';
import { whatIfPage } from './whatif.js';

const main = document.getElementById('main');
const live = document.getElementById('live');
const leave = document.getElementById('leave');
let page = null;

function showLive(connected, problem) {
    live.className = `live ${connected ? 'on' : 'off'}`;
    text(live, connected ? 'Live' : problem?.status === 0 || !problem ? 'Reconnecting…' : 'Not live');
    live.title = problem ? problem.message : '';
}

function askToken(problem) {
    page?.abort();
    page = null;
    store.end();
    leave.hidden = true;
    live.className = 'live';
    text(live, '');
    document.title = 'Sign in · Muster';
    const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, spellcheck: 'false' });
    const keep = h('input', { id: 'keep', type: 'checkbox', checked: true });
    const words = h('p.warn', { role: 'alert' }, problem ? `${problem.message}.` : '');
    const form = h('form.sign-in.panel', { onsubmit: async (e) => {
        e.preventDefault();
        api.setToken(field.value.trim(), keep.checked);
        try {
            await api.get('/v1/cluster');
            enter();
        } catch (fault) {
            if (fault.status === 401 || fault.status === 403)
                api.dropToken();
            text(words, `${fault.message}.`);
            field.focus();
        }
    } }, h('h1', {}, 'Sign in to Muster'),
    h('label', { for: 'token' }, 'Token'), field, words,
    h('label.check', { for: 'keep' }, keep, 'Keep it in this browser'),
    h('button.primary', { type: 'submit' }, 'Sign in'),
    h('p.note', {}, 'The administrator’s token is in the file ', h('code', {}, 'token'),
        ' of the server’s state folder, for a local cluster ', h('code', {}, '~/.local/state/muster/token'),
        '. ', h('code', {}, 'muster up'), ' prints an address that has it.'));
    main.replaceChildren(form);
    field.focus();
}

function route() {
    if (!api.hasToken())
        return;
    const [, name, id] = decodeURI(location.hash.split('?')[0]).split('/');
    page?.abort();
    document.querySelectorAll('dialog[open]').forEach((d) => d.close()); /* they were of the page before */
    page = new AbortController();
    const { signal } = page;
    let title;
    if (!name)
        title = overview(main, signal);
    else if (name === 'nodes' && id)
        title = nodePage(main, signal, id);
    else if (name === 'cluster')
        title = clusterPage(main, signal);
    else if (name === 'what-if')
        title = whatIfPage(main, signal);
    else if (name === 'nodes')
        title = nodesPage(main, signal);
    else if (name === 'notices')
        title = noticesPage(main, signal);
    else if (name === 'compare')
        title = comparePage(main, signal);
    else if (name === 'new')
        title = submitPage(main, signal);
    else if (name === 'jobs' && id)
        title = jobPage(main, signal, id);
    else {
        main.replaceChildren(h('h1.sr', {}, 'Not found'), empty('There is no such page', h('a', { href: '#/' }, 'To the jobs')));
        title = 'Not found';
    }
    document.title = `${title} · Muster`;
    for (const a of document.querySelectorAll('nav a')) {
        const here = a.dataset.page === (['nodes', 'cluster', 'compare', 'notices', 'new'].includes(name) ? name : name === 'what-if' ? 'cluster' : 'overview');
        a.toggleAttribute('data-here', here);
        if (here && name !== 'jobs')
            a.setAttribute('aria-current', 'page');
        else
            a.removeAttribute('aria-current');
    }
    window.scrollTo(0, 0);
}

function enter() {
    leave.hidden = false;
    store.start(showLive, (problem) => {
        api.dropToken();
        askToken(problem);
    });
    route();
}

document.getElementById('theme').addEventListener('click', () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    localStorage.setItem('muster-theme', root.dataset.theme);
    document.dispatchEvent(new Event('muster-theme'));
});
document.querySelector('.skip').addEventListener('click', (e) => {
    e.preventDefault(); /* the address after # is the page */
    main.focus();
});
leave.addEventListener('click', () => {
    api.dropToken();
    askToken(null);
});
window.addEventListener('hashchange', () => {
    if (location.hash.includes('token=')) {
        api.takeTokenFromAddress();
        enter();
        return;
    }
    route();
    main.focus({ preventScroll: true });
});

api.takeTokenFromAddress();
if (api.hasToken())
    enter();
else
    askToken(null);
