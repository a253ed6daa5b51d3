// A FUSE file system that does nothing: the upper bound beside the figures of a mount of ours.
//
// One directory with one file, "data", of the size given. Reads give what one buffer holds, writes
// are accepted and forgotten. It speaks the kernel's protocol itself, as our own mount does, and
// makes the same promises (transfers of 1 MiB, parallel direct writes, a second of cached
// attributes, two threads with a descriptor each), so that what differs is what is done and not how
// the kernel asks for it. Nothing of our code is in it.
//
// With "write-back" the kernel keeps writes in its page cache first, as it does for ours then.
//
// usage: nothing-fuse MOUNTPOINT BYTES [write-back], as root; ends when it is unmounted, and
// unmounts at SIGTERM.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DATA = 2, TRANSFER_BYTES_MAX = 1 << 20, REQUEST_BYTES_MAX = TRANSFER_BYTES_MAX + 4096, THREADS = 2 };
static char data[TRANSFER_BYTES_MAX];
static uint64_t size_bytes;
static const char *mountpoint;
static uint32_t cache_flags;

static void answer(int device, uint64_t unique, int error, const void *body, size_t length)
{
    struct fuse_out_header head = {
        .len = sizeof head + (error ? 0 : length), .error = -error, .unique = unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, length}};
    // A request that was interrupted has no one to answer.
    if (writev(device, parts, error || length == 0 ? 1 : 2) < 0 && errno != ENOENT)
        perror("nothing-fuse: answer");
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr found = {.ino = node, .blksize = 4096, .nlink = 1};
    found.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
    found.size = node == DATA ? size_bytes : 0;
    return found;
}

static void on_init(int device, uint64_t unique, const struct fuse_init_in *offer)
{
    uint32_t wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO
        | FUSE_PARALLEL_DIROPS | FUSE_AUTO_INVAL_DATA | cache_flags;
    struct fuse_init_out agreed = {
        .major = FUSE_KERNEL_VERSION,
        .minor = offer->minor < FUSE_KERNEL_MINOR_VERSION ? offer->minor : FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = offer->max_readahead,
        .flags = offer->flags & wanted,
        .max_background = 64,
        .congestion_threshold = 48,
        .max_write = TRANSFER_BYTES_MAX,
        .time_gran = 1,
        .max_pages = TRANSFER_BYTES_MAX / 4096,
    };
    answer(device, unique, 0, &agreed, sizeof agreed);
}

static void on_lookup(int device, uint64_t unique, const char *name)
{
    struct fuse_entry_out entry = {
        .nodeid = DATA, .generation = 1, .entry_valid = 1, .attr_valid = 1, .attr = attributes(DATA)};
    int error = strcmp(name, "data") == 0 ? 0 : ENOENT;
    answer(device, unique, error, &entry, sizeof entry);
}

static void on_read(int device, uint64_t unique, const struct fuse_read_in *wanted)
{
    uint64_t left = wanted->offset < size_bytes ? size_bytes - wanted->offset : 0;
    answer(device, unique, 0, data, left < wanted->size ? left : wanted->size);
}

// Serves one request; 0 once the file system is gone.
static int serve(int device, char *buffer)
{
    ssize_t length = read(device, buffer, REQUEST_BYTES_MAX);
    if (length < 0)
        return errno == EINTR || errno == ENOENT || errno == EAGAIN;
    const struct fuse_in_header *head = (const void *)buffer;
    const void *body = head + 1;
    struct fuse_attr_out attr = {.attr_valid = 1, .attr = attributes(head->nodeid)};
    struct fuse_open_out opened = {0};
    struct fuse_write_out written = {0};
    switch (head->opcode) {
    case FUSE_INIT: on_init(device, head->unique, body); break;
    case FUSE_LOOKUP: on_lookup(device, head->unique, body); break;
    case FUSE_GETATTR:
    case FUSE_SETATTR: answer(device, head->unique, 0, &attr, sizeof attr); break;
    case FUSE_OPEN:
        if (((const struct fuse_open_in *)body)->flags & O_DIRECT)
            opened.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
        answer(device, head->unique, 0, &opened, sizeof opened);
        break;
    case FUSE_READ: on_read(device, head->unique, body); break;
    case FUSE_WRITE:
        written.size = ((const struct fuse_write_in *)body)->size;
        answer(device, head->unique, 0, &written, sizeof written);
        break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_FSYNC: answer(device, head->unique, 0, NULL, 0); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: break;
    default: answer(device, head->unique, ENOSYS, NULL, 0);
    }
    return 1;
}

static void *loop(void *device)
{
    char *buffer = malloc(REQUEST_BYTES_MAX);
    while (buffer != NULL && serve((int)(intptr_t)device, buffer)) {}
    free(buffer);
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    umount2(mountpoint, MNT_DETACH);
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    char options[128];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (count != 3 && (count != 4 || strcmp(words[3], "write-back") != 0)) {
        fprintf(stderr, "usage: nothing-fuse MOUNTPOINT BYTES [write-back]\n");
        return 2;
    }
    mountpoint = words[1];
    size_bytes = strtoull(words[2], NULL, 10);
    cache_flags = count == 4 ? FUSE_WRITEBACK_CACHE : 0;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (device < 0 || mount("nothing", mountpoint, "fuse.nothing", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("nothing-fuse: mount");
        return 1;
    }
    signal(SIGTERM, on_signal);
    char *first = malloc(REQUEST_BYTES_MAX);
    if (first == NULL || !serve(device, first))
        return 1;
    free(first);
    for (int number = 0; number < THREADS; number++) {
        int own = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        uint32_t parent = device;
        if (own < 0 || ioctl(own, FUSE_DEV_IOC_CLONE, &parent) != 0)
            own = device;
        pthread_create(&threads[number], NULL, loop, (void *)(intptr_t)own);
    }
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    return 0;
}
