/* run, in an allocation of Slurm of several nodes: a server of its own, and an agent on each of them. */
#include "api/cli/slurm_run.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/slurm_batch.h"

/* Arguments: the programs' folder, the folder of the run, the spec, and options of submit. The server and the agents
 * end with the job; what a signal ends leaves the last checkpoint. */
static const char script[] =
    "set -eu\n"
    "umask 077\n"
    "bin=$1 run=$2 spec=$3\n"
    "shift 3\n"
    "dir=$(mktemp -d \"${TMPDIR:-/tmp}/muster-run-$SLURM_JOB_ID-XXXXXX\")\n"
    "agents='' server=''\n"
    "end() {\n"
    "    trap '' EXIT USR1 TERM INT\n"
    "    [ -z \"$agents\" ] || { kill -TERM $agents 2>/dev/null; wait $agents; } || :\n"
    "    [ -z \"$server\" ] || { kill -TERM $server 2>/dev/null; wait $server; } || :\n"
    "    rm -rf \"$dir\"\n"
    "}\n"
    "trap end EXIT\n"
    "trap 'exit 143' USR1 TERM INT\n"
    "host=$(hostname)\n"
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=muster \\\n"
    "    -addext \"subjectAltName=DNS:$host\" -keyout \"$dir/key.pem\" -out \"$dir/cert.pem\" 2>\"$dir/openssl.log\" "
    "|| {\n"
    "    echo \"muster: openssl makes no certificate: $(tail -n 1 \"$dir/openssl.log\")\" >&2\n"
    "    exit 1\n"
    "}\n"
    "mkdir -p \"$run\"\n"
    "\"$bin/musterd\" --state \"$dir/state\" --jobs-dir \"$run/jobs\" --bind 0.0.0.0 --port 0 --agents enrolled \\\n"
    "    --tls-cert \"$dir/cert.pem\" --tls-key \"$dir/key.pem\" >\"$run/musterd.log\" 2>&1 &\n"
    "server=$!\n"
    "until [ -s \"$dir/state/server.json\" ] && [ -s \"$dir/state/token\" ]; do\n"
    "    kill -0 $server 2>/dev/null || { tail -n 5 \"$run/musterd.log\" >&2; exit 1; }\n"
    "    sleep 0.1\n"
    "done\n"
    "port=$(sed 's/.*:\\([0-9]*\\)\".*/\\1/' \"$dir/state/server.json\")\n"
    "export MUSTER_SERVER=\"https://$host:$port\" MUSTER_CACERT=\"$dir/cert.pem\"\n"
    "MUSTER_TOKEN=$(cat \"$dir/state/token\")\n"
    "export MUSTER_TOKEN\n"
    "codes='' i=0\n"
    "while [ $i -lt \"$SLURM_JOB_NUM_NODES\" ]; do\n"
    "    codes=\"$codes $(\"$bin/muster\" node enroll \"n$i\" 2>/dev/null)\"\n"
    "    i=$((i + 1))\n"
    "done\n"
    "MUSTER_CODES=$codes MUSTER_URL=$MUSTER_SERVER MUSTER_CA=$(cat \"$dir/cert.pem\") MUSTER_PROGRAMS=$bin "
    "MUSTER_GRACE=1 \\\n"
    "    MUSTER_AGENT= MUSTER_CLASS= MUSTER_DEVICES= MUSTER_TOKEN= MUSTER_END= \\\n"
    "    srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --ntasks=\"$SLURM_JOB_NUM_NODES\" --overlap \\\n"
    "    --kill-on-bad-exit=0 /bin/sh -c \"$MUSTER_TASK\" >\"$run/agents.log\" 2>&1 &\n"
    "agents=$!\n"
    "until [ \"$(\"$bin/muster\" nodes -o json | grep -o '\"state\": *\"ready\"' | wc -l)\" -ge "
    "\"$SLURM_JOB_NUM_NODES\" ]; do\n"
    "    kill -0 $agents 2>/dev/null || { tail -n 5 \"$run/agents.log\" >&2; exit 1; }\n"
    "    sleep 0.2\n"
    "done\n"
    "\"$bin/muster\" submit --watch \"$@\" \"$spec\"\n";

bool slurm_run_here(void)
{
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");

    /* In a step each task would start a cluster: there it trains on its own node, as everywhere. */
    return getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID") && nodes && strtol(nodes, NULL, 10) > 1;
}

int slurm_run(const char *file, const char *dir, const char *devices)
{
    char programs[PATH_MAX];
    const char *argv[] = {"sh",    "-c", script, "muster", programs, dir, file, devices ? "--devices" : NULL,
                          devices, NULL};

    if (cli_program("muster", programs, sizeof(programs)))
        return CLI_FAILED;
    *strrchr(programs, '/') = '\0';
    if (setenv("MUSTER_TASK", slurm_batch_task, 1) < 0)
        return cli_fail(CLI_FAILED, "no memory for the environment");
    (void)fflush(NULL);
    (void)execv("/bin/sh", (char *const *)argv);
    return cli_fail(CLI_FAILED, "cannot run /bin/sh");
}
