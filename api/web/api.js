/* api - requests to the server and streams from it, with the token that this browser keeps */

const KEY = 'muster-token';
let token = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);

/* A fault as the server tells it: `message` is for people. */
export class Problem extends Error {
    constructor(status, body) {
        super(body?.detail ?? (status ? `the server answered ${status}` : 'the server cannot be reached'));
        this.status = status;
        this.code = (body?.type ?? '').split(':').pop();
        this.errors = body?.errors ?? [];
    }
}

export const hasToken = () => !!token;

export function setToken(value, keep) {
    token = value;
    sessionStorage.setItem(KEY, value);
    if (keep)
        localStorage.setItem(KEY, value);
}

export function dropToken() {
    token = null;
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
}

/* `muster up` prints an address that ends with #token=…: take it and hide it from the address bar. */
export function takeTokenFromAddress() {
    const found = /(?:^#|&)token=([^&]+)/.exec(location.hash);
    if (!found)
        return;
    setToken(decodeURIComponent(found[1]), true);
    history.replaceState(null, '', location.pathname + '#/');
}

async function send(path, options = {}) {
    let answer;
    try {
        answer = await fetch(path, {
            ...options, cache: 'no-store',
            headers: { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) },
        });
    } catch (e) {
        if (e.name === 'AbortError')
            throw e;
        throw new Problem(0);
    }
    if (!answer.ok && answer.status !== 304)
        throw new Problem(answer.status, await answer.json().catch(() => null));
    return answer;
}

export async function get(path, signal) {
    return (await send(path, { signal })).json();
}

export async function post(path, body) {
    const answer = await send(path, body === undefined ? { method: 'POST' } : {
        method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } });
    return answer.status === 204 ? null : answer.json().catch(() => null);
}

export async function postText(path, text, { headers = {}, signal } = {}) {
    return (await send(path, { method: 'POST', body: text, signal, headers: { ...headers, 'Content-Type': 'application/yaml' } })).json();
}

export async function patch(path, body) {
    return (await send(path, { method: 'PATCH', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })).json();
}

export async function remove(path) {
    const answer = await send(path, { method: 'DELETE' });
    return answer.status === 204 ? null : answer.json().catch(() => null);
}

/* All pages of a list, `most` entries at most; seen(page) is told of each. Of a list of one page the result has its
 * `etag`; it is `unchanged`, and empty, where the list still is the one of the etag given. */
export async function pages(path, field, most, signal, seen = () => {}, etag = null) {
    const all = [];
    let cursor = null;
    do {
        const mark = path.includes('?') ? '&' : '?';
        const answer = await send(path + (cursor ? `${mark}cursor=${encodeURIComponent(cursor)}` : ''),
            { signal, headers: etag && !cursor ? { 'If-None-Match': etag } : {} });
        if (answer.status === 304)
            return Object.assign(all, { unchanged: true });
        const page = await answer.json();
        all.push(...page[field]);
        seen(page);
        if (!cursor && !page.next_cursor)
            all.etag = answer.headers.get('ETag');
        cursor = page.next_cursor;
    } while (cursor && all.length < most);
    return all;
}

/* Split a stream's text into events: feed() takes what came and calls on(event) for each whole one. */
export function sseParser(on) {
    let rest = '';
    return (text) => {
        rest += text;
        for (let end; (end = rest.search(/\r?\n\r?\n/)) >= 0;) {
            const event = { id: '', type: 'message', data: '' };
            for (const line of rest.slice(0, end).split(/\r?\n/)) {
                const at = line.indexOf(':');
                if (at <= 0)
                    continue;
                const name = line.slice(0, at), value = line.slice(at + 1).replace(/^ /, '');
                if (name === 'id')
                    event.id = value;
                else if (name === 'event')
                    event.type = value;
                else if (name === 'data')
                    event.data += (event.data ? '\n' : '') + value;
            }
            rest = rest.slice(end).replace(/^\r?\n\r?\n/, '');
            if (event.data)
                on(event);
        }
    };
}

const pause = (ms, signal) => new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

/* Follow a stream until signal aborts; a broken one is taken up again where it ended, after a growing pause.
 * on(type, data, id) gets each event; state(connected, problem) each change. An `end` event ends it. */
export async function follow(path, { signal, on, state = () => {}, lastId = '' }) {
    let wait = 500, ended = false;
    while (!signal.aborted && !ended) {
        try {
            const answer = await send(path, {
                signal, headers: { Accept: 'text/event-stream', ...(lastId ? { 'Last-Event-ID': lastId } : {}) } });
            state(true);
            wait = 500;
            const parse = sseParser((e) => {
                if (e.id)
                    lastId = e.id;
                if (e.type === 'end')
                    ended = true;
                else if (e.type !== 'lagging')
                    on(e.type, JSON.parse(e.data), e.id);
            });
            const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
            for (let part; !(part = await reader.read()).done;)
                parse(part.value);
            if (!ended)
                state(false);
        } catch (e) {
            if (signal.aborted)
                return;
            state(false, e);
            if (e instanceof Problem && e.status >= 400 && e.status < 500 && e.status !== 429)
                return;
        }
        if (!ended)
            await pause(wait, signal);
        wait = Math.min(wait * 2, 10000);
    }
}
