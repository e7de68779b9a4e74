/* store - what the pages show, kept true by the stream of events
 *
 * Lists are read whole once; the stream then brings what has changed as it looks now. Metrics go straight into the
 * job's progress. Pages subscribe with watch() until their signal aborts.
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
let timer = null, etag = null;   /* of the list of nodes, where it is one page */

export function watch(on, signal) {
    watchers.add(on);
    signal.addEventListener('abort', () => watchers.delete(on), { once: true });
}

function tell(event) {
    for (const on of watchers)
        on(event);
}

/* A view that the stream brings while something is read is newer than what was read, or another one comes. */
const viewed = new Map();        /* id of a job or node → number of its newest view */
let views = 0;

const isNewer = (id, began) => (viewed.get(id) ?? 0) > began;

async function readNodes() {
    const began = views;
    const found = await pages('/v1/nodes?limit=1000', 'nodes', Infinity, undefined, () => {}, etag);
    if (found.unchanged)
        return;
    const newer = nodes.filter((n) => isNewer(`node ${n.id}`, began));
    nodes = found;
    etag = found.etag;
    newer.forEach(putNode);
}

async function readCluster() {
    const [, c] = await Promise.all([readNodes(), get('/v1/cluster')]);
    cluster = c;
}

/* A view of the stream takes the place of what is there; the list of nodes is in the order of their names. */
function putNode(node) {
    const at = nodes.findIndex((n) => n.id >= node.id);
    etag = null; /* what is here is not what was read */
    nodes = nodes.slice();
    nodes.splice(at < 0 ? nodes.length : at, at >= 0 && nodes[at].id === node.id ? 1 : 0, node);
}

export async function readAll() {
    const began = views;
    try {
        const [list] = await Promise.all([pages('/v1/jobs?limit=100', 'jobs', JOBS_KEPT), readCluster()]);
        const older = list.length < JOBS_KEPT ? [] : await pages('/v1/jobs?state=active&limit=100', 'jobs', JOBS_KEPT);
        const newer = [...jobs.values()].filter((job) => isNewer(job.id, began));
        jobs.clear();
        for (const job of [...list, ...older, ...newer])
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
    const ended = [...jobs.values()].filter(isEnded)
        .sort((a, b) => !a.task - !b.task || number(a) - number(b)); /* tasks first: their array says what became of them */
    for (const job of ended.slice(0, Math.max(0, jobs.size - JOBS_KEPT))) {
        jobs.delete(job.id);
        viewed.delete(job.id);
    }
}

async function readStale() {
    timer = null;
    const ids = [...stale], began = views;
    stale.clear();
    try {
        const found = await Promise.all(ids.map((id) => get(`/v1/jobs/${id}`).catch((e) => (e.status === 404 ? null
            : Promise.reject(e)))));
        for (const job of found)
            if (job) /* views are as lists have them, without plan and specification */
                jobs.set(job.id, isNewer(job.id, began) ? { ...job, ...jobs.get(job.id) } : job);
        await readCluster();
        fault = null;
    } catch (e) {
        fault = e;
    }
    tell(null);
}

let told = null;

/* Views may come by the hundred: pages are told of them a few times a second. */
function tellSoon() {
    told ??= setTimeout(() => { told = null; forgetOldest(); tell(null); }, 150);
}

function later() {
    timer ??= setTimeout(readStale, 150);
}

export function refreshJob(id) {
    stale.add(id);
    later();
}

function take(type, event) {
    if (type === 'view-node') {
        viewed.set(`node ${event.id}`, ++views);
        putNode(event);
        return void tellSoon();
    }
    if (type === 'view-job') {
        viewed.set(event.id, ++views);
        jobs.set(event.id, event);
        return void tellSoon();
    }
    if (type === 'view-cluster') {
        cluster = event;
        return void tellSoon();
    }
    if (type === 'reread')
        return void readAll();
    const job = jobs.get(event.job);
    if (type === 'metrics') {
        if (job) {
            const steps = job.progress?.steps;
            /* Training counted from 0 before version 1; a program's own steps are as it wrote them. */
            const step = event.data.step + (steps && !(event.data.v >= 1) ? 1 : 0);
            job.progress = { ...job.progress, step, loss: event.data.loss, tokens_per_s: event.data.tokens_per_s,
                eta_s: steps && event.data.step_ms ? (steps - step) * event.data.step_ms / 1000 : job.progress?.eta_s };
        }
    } else if (type === 'eval' && job && event.data?.loss !== undefined) {
        job.eval = { step: event.data.step, loss: event.data.loss };
    } else if (type === 'node' && (event.cause?.code === 'removed' || event.cause?.code === 'forgotten')) {
        nodes = nodes.filter((n) => n.id !== event.data.node);
    }
    tell(event);
}

/* Read all and follow; live(connected, problem) tells of the stream, signedOut(problem) of a refused token. */
export function start(live, signedOut) {
    stop?.abort();
    stop = new AbortController();
    onSignedOut = signedOut;
    const { signal } = stop;
    follow('/v1/events?changes=1', {
        signal, on: take,
        state: (connected, problem) => {
            if (problem?.status === 401)
                onSignedOut(problem);
            if (connected || !loaded)
                readAll(); /* what has happened before the stream began, or while it was broken */
            live(connected, problem);
        },
    });
    /* Nodes' last words and what their GPUs measure are not in the stream: look now and then. */
    const look = setInterval(() => { if (!document.hidden) later(); }, 10000);
    signal.addEventListener('abort', () => clearInterval(look), { once: true });
}

export function end() {
    stop?.abort();
    jobs.clear();
    nodes = [];
    cluster = null;
    loaded = false;
}
