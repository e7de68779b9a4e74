/* store - what the pages show, kept true by the stream of events
 *
 * Lists are read whole once; an event then says what to read again, at most a few times a second. Metrics go
 * straight into the job's progress. Pages subscribe with watch() until their signal aborts.
 */
import { follow, get, pages } from './api.js';
import { isEnded } from './ui.js';

export const jobs = new Map();   /* id → job, without spec */
export let nodes = [];
export let cluster = null;
export let loaded = false;
export let fault = null;         /* the last problem of reading the lists */

export const JOBS_KEPT = 500;    /* the newest, and all that have not ended */
export const number = (job) => Number(job.id.slice(1));
const watchers = new Set();
let stop = null, onSignedOut = () => {};
const stale = new Set();         /* jobs to read again */
let staleCluster = false, timer = null;

export function watch(on, signal) {
    watchers.add(on);
    signal.addEventListener('abort', () => watchers.delete(on), { once: true });
}

function tell(event) {
    for (const on of watchers)
        on(event);
}

async function readCluster() {
    const [n, c] = await Promise.all([pages('/v1/nodes?limit=1000', 'nodes', Infinity), get('/v1/cluster')]);
    nodes = n;
    cluster = c;
}

export async function readAll() {
    try {
        const [list] = await Promise.all([pages('/v1/jobs?limit=100', 'jobs', JOBS_KEPT), readCluster()]);
        const older = list.length < JOBS_KEPT ? [] : await pages('/v1/jobs?state=active&limit=100', 'jobs', JOBS_KEPT);
        jobs.clear();
        for (const job of [...list, ...older])
            jobs.set(job.id, job);
        loaded = true;
        fault = null;
    } catch (e) {
        fault = e;
        if (e.status === 401)
            onSignedOut(e);
    }
    tell(null);
}

/* A page that is left open for weeks keeps as much as one just opened. */
function forgetOldest() {
    const ended = [...jobs.values()].filter(isEnded).sort((a, b) => number(a) - number(b));
    for (const job of ended.slice(0, Math.max(0, jobs.size - JOBS_KEPT)))
        jobs.delete(job.id);
}

async function readStale() {
    timer = null;
    const ids = [...stale];
    const readNodes = staleCluster;
    stale.clear();
    staleCluster = false;
    try {
        if (ids.length > 20) {
            await readAll();
            return;
        }
        const found = await Promise.all(ids.map((id) => get(`/v1/jobs/${id}`).catch((e) => (e.status === 404 ? null
            : Promise.reject(e)))));
        for (const job of found)
            if (job)
                jobs.set(job.id, job);
        forgetOldest();
        if (readNodes)
            await readCluster();
        fault = null;
    } catch (e) {
        fault = e;
    }
    tell(null);
}

function later() {
    timer ??= setTimeout(readStale, 150);
}

export function refreshJob(id) {
    stale.add(id);
    staleCluster = true;
    later();
}

function take(type, event) {
    const job = jobs.get(event.job);
    if (type === 'metrics') {
        if (job) {
            const steps = job.progress?.steps;
            const step = event.data.step + 1;
            job.progress = { ...job.progress, step, loss: event.data.loss, tokens_per_s: event.data.tokens_per_s,
                eta_s: steps && event.data.step_ms ? (steps - step) * event.data.step_ms / 1000 : job.progress?.eta_s };
        }
    } else if (type === 'eval' && job && event.data?.loss !== undefined) {
        job.eval = { step: event.data.step, loss: event.data.loss };
    } else {
        if (event.job)
            stale.add(event.job);
        staleCluster = true;
        later();
    }
    tell(event);
}

/* Read all and follow; live(connected, problem) tells of the stream, signedOut(problem) of a refused token. */
export function start(live, signedOut) {
    stop?.abort();
    stop = new AbortController();
    onSignedOut = signedOut;
    const { signal } = stop;
    let was = null;
    readAll();
    follow('/v1/events', {
        signal, on: take,
        state: (connected, problem) => {
            if (problem?.status === 401)
                onSignedOut(problem);
            if (connected && was === false)
                readAll(); /* something may have happened that the stream no longer has */
            was = connected;
            live(connected, problem);
        },
    });
    /* A node that falls silent sends nothing: look now and then. */
    const look = setInterval(() => { if (!document.hidden) { staleCluster = true; later(); } }, 10000);
    signal.addEventListener('abort', () => clearInterval(look), { once: true });
}

export function end() {
    stop?.abort();
    jobs.clear();
    nodes = [];
    cluster = null;
    loaded = false;
}
