// What libnfs costs as a load generator, beside the client of `stroop bench nfs`.
//
// Random 4 KiB reads of one file on one connection, DEPTH in flight, for SECONDS; prints reads a
// second and the processor time of this process for each of them.
//
// build: cc -O2 -o libnfs-load libnfs_load.c -lnfs (Debian: libnfs-dev)
// usage: libnfs-load URL-OF-DIRECTORY FILE BYTES DEPTH SECONDS
//        libnfs-load 'nfs://127.0.0.1/bench?nfsport=12049&mountport=12049' data 268435456 32 3
#include <sys/time.h>
// libnfs.h wants it before itself.
#include <nfsc/libnfs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { SMALL_BYTES = 4096 };
static struct nfsfh *file;
static uint64_t blocks, numbers = 1, done, in_flight;
static double deadline;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(struct nfs_context *nfs, const char *what)
{
    fprintf(stderr, "libnfs-load: %s: %s\n", what, nfs_get_error(nfs));
    exit(1);
}

static void on_read(int status, struct nfs_context *nfs, void *data, void *unused);

static void start(struct nfs_context *nfs)
{
    numbers ^= numbers << 13, numbers ^= numbers >> 7, numbers ^= numbers << 17;
    if (nfs_pread_async(nfs, file, numbers % blocks * SMALL_BYTES, SMALL_BYTES, on_read, NULL) != 0)
        fail(nfs, "read");
    in_flight++;
}

static void on_read(int status, struct nfs_context *nfs, void *data, void *unused)
{
    (void)data;
    (void)unused;
    if (status != SMALL_BYTES)
        fail(nfs, "a read is short");
    in_flight--;
    done++;
    if (now() < deadline)
        start(nfs);
}

int main(int count, char **words)
{
    struct nfs_context *nfs = nfs_init_context();
    if (count != 6 || nfs == NULL) {
        fprintf(stderr, "usage: libnfs-load URL FILE BYTES DEPTH SECONDS\n");
        return 2;
    }
    struct nfs_url *url = nfs_parse_url_dir(nfs, words[1]);
    if (url == NULL || nfs_mount(nfs, url->server, url->path) != 0)
        fail(nfs, "mount");
    if (nfs_open(nfs, words[2], 0, &file) != 0)
        fail(nfs, "open");
    blocks = strtoull(words[3], NULL, 10) / SMALL_BYTES;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double begin = now();
    deadline = begin + atof(words[5]);
    for (int lane = 0; lane < atoi(words[4]); lane++)
        start(nfs);
    while (in_flight > 0) {
        struct pollfd socket = {.fd = nfs_get_fd(nfs), .events = nfs_which_events(nfs)};
        if (poll(&socket, 1, 1000) < 0 || nfs_service(nfs, socket.revents) < 0)
            fail(nfs, "service");
    }
    double seconds = now() - begin;
    getrusage(RUSAGE_SELF, &after);
    double used = after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec
        - before.ru_stime.tv_sec
        + (after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec
           - before.ru_stime.tv_usec) / 1e6;
    printf("%.0f reads/s, %.2f us of processor time each\n", done / seconds, used * 1e6 / done);
    return 0;
}
