/* A stranger's program over the client that a public generator makes of api/openapi.yaml. It prints what it sees.
 * The generator gives each answer the type of the success or of a problem, though it throws problems. */
import { ApiError, Job, JobsService, OpenAPI } from './generated/index';

declare const process: { argv: string[] };

const ended = ['succeeded', 'failed', 'cancelled'];

async function ends(id: string): Promise<string> {
    for (let i = 0; i < 600; i++) {
        const job = (await JobsService.getJob(id)) as Job;
        if (ended.includes(job.state)) return job.state;
        await new Promise(done => setTimeout(done, 100));
    }
    throw new Error(`${id} has not ended`);
}

async function submit(argv: string[]): Promise<string> {
    const job = await JobsService.submitJob({ name: 'generated', devices: { min: 1, max: 1 }, command: { argv } });
    return (job as Job).id;
}

async function main() {
    OpenAPI.BASE = process.argv[2];
    OpenAPI.TOKEN = process.argv[3];
    console.log('short', await ends(await submit(['/bin/true'])));
    const long = await submit(['/bin/sleep', '1000']);
    await JobsService.cancelJob(long);
    console.log('long', await ends(long));
    try {
        await JobsService.getJob('j999');
    } catch (e) {
        console.log('unknown', (e as ApiError).status, (e as ApiError).body.type);
    }
    console.log('listed', ((await JobsService.listJobs()) as { jobs: Job[] }).jobs.length);
}

void main();
