/* A stand-in for libcuda.so.1: one device whose memory is a file that processes share.
 *
 * STAND_IN_GPU names the file: the total in bytes, then what each process holds, and what of it was
 * put aside by `suspend.py`: until that is back the process waits in its next call. What a process
 * held is free once it is gone, as with the real driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 512
struct memory {
    uint64_t total;
    struct { int64_t pid; uint64_t held, aside; } by[MOST];
};

static struct memory *open_memory(int *fd) {
    *fd = open(getenv("STAND_IN_GPU"), O_RDWR | O_CLOEXEC);
    flock(*fd, LOCK_EX);
    return mmap(NULL, sizeof(struct memory), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
}

static void close_memory(struct memory *memory, int fd) {
    munmap(memory, sizeof *memory);
    close(fd);
}

static uint64_t sum(struct memory *memory) {
    uint64_t held = 0;
    for (int i = 0; i < MOST; i++) {
        int64_t pid = memory->by[i].pid;
        if (pid && kill((pid_t)pid, 0) && errno == ESRCH) memset(&memory->by[i], 0, sizeof memory->by[i]);
        held += memory->by[i].held;
    }
    return held;
}

/* The memory with this process in it, once nothing of it is put aside. */
static struct memory *open_awake(int *fd) {
    for (;;) {
        struct memory *memory = open_memory(fd);
        int aside = 0;
        for (int i = 0; i < MOST; i++) aside |= memory->by[i].pid == getpid() && memory->by[i].aside;
        if (!aside) return memory;
        close_memory(memory, *fd);
        usleep(10000);
    }
}

static int take(int64_t more) {
    int fd, code = 2, own = -1, empty = -1;
    struct memory *memory = open_awake(&fd);
    uint64_t held = sum(memory);
    for (int i = 0; i < MOST; i++) {
        if (memory->by[i].pid == getpid()) own = i;
        if (!memory->by[i].pid && empty < 0) empty = i;
    }
    own = own < 0 ? empty : own;
    if (more <= 0 || held + (uint64_t)more <= memory->total) {
        memory->by[own].pid = getpid();
        memory->by[own].held += (uint64_t)more;
        code = 0;
    }
    close_memory(memory, fd);
    return code;
}

/* A new image of a process holds nothing of what the one before it held. */
__attribute__((constructor)) static void begin(void) {
    int fd;
    if (!getenv("STAND_IN_GPU")) return;
    struct memory *memory = open_memory(&fd);
    for (int i = 0; i < MOST; i++)
        if (memory->by[i].pid == getpid()) memset(&memory->by[i], 0, sizeof memory->by[i]);
    close_memory(memory, fd);
}

static int has_context;

static int give(void **at, size_t size) {
    int code = take((int64_t)size);
    if (code) return code;
    has_context = 1;
    size_t *header = malloc(16);
    *header = size;
    *at = header;
    return 0;
}

static int take_back(void *at) {
    if (!at) return 0;
    take(-(int64_t) * (size_t *)at);
    free(at);
    return 0;
}

int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetUuid_v2(unsigned char *id, int device) {
    memset(id, 0xab, 16);
    id[15] = (unsigned char)device;
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *there) {
    (void)device, (void)flags;
    *there = has_context;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    return give(context, 8 << 20);
}
static void look(uint64_t *left, uint64_t *total) {
    int fd;
    struct memory *memory = open_awake(&fd);
    *total = memory->total;
    *left = memory->total - sum(memory);
    close_memory(memory, fd);
}
int cuMemGetInfo_v2(size_t *left, size_t *total) {
    if (!has_context) return 201;
    look(left, total);
    return 0;
}

/* Of NVML, which needs no context. */
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *name, void **device) {
    *device = NULL;
    return strcmp(name, "GPU-abababab-abab-abab-abab-ababababab00") ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo(void *device, uint64_t seen[3]) {
    (void)device;
    look(&seen[1], &seen[0]);
    return 0;
}
int cuMemAlloc_v2(void **at, size_t size) { return give(at, size); }
int cuMemFree_v2(void *at) { return take_back(at); }
int cuMemAllocAsync(void **at, size_t size, void *stream) { (void)stream; return give(at, size); }
int cuMemAllocAsync_ptsz(void **at, size_t size, void *stream) { (void)stream; return give(at, size); }
int cuMemAllocFromPoolAsync(void **at, size_t size, void *pool, void *stream) {
    (void)pool, (void)stream;
    return give(at, size);
}
int cuMemFreeAsync(void *at, void *stream) { (void)stream; return take_back(at); }
int cuMemFreeAsync_ptsz(void *at, void *stream) { (void)stream; return take_back(at); }
int cuMemAllocManaged(void **at, size_t size, unsigned flags) { (void)flags; return give(at, size); }
int cuMemCreate(void **handle, size_t size, const int *what, unsigned long long flags) {
    (void)what, (void)flags;
    return give(handle, size);
}
int cuMemRelease(void *handle) { return take_back(handle); }

int cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags, int *how);
static const struct { const char *name; void *real, *by_thread; } functions[] = {
    {"cuMemAlloc", cuMemAlloc_v2, NULL},
    {"cuMemFree", cuMemFree_v2, NULL},
    {"cuMemAllocAsync", cuMemAllocAsync, cuMemAllocAsync_ptsz},
    {"cuMemFreeAsync", cuMemFreeAsync, cuMemFreeAsync_ptsz},
    {"cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync, NULL},
    {"cuMemAllocManaged", cuMemAllocManaged, NULL},
    {"cuMemCreate", cuMemCreate, NULL},
    {"cuMemRelease", cuMemRelease, NULL},
    {"cuGetProcAddress", cuGetProcAddress_v2, NULL},
};

int cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags, int *how) {
    (void)version;
    *at = NULL;
    if (how) *how = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name))
            *at = (flags & 2) && functions[i].by_thread ? functions[i].by_thread : functions[i].real;
    return *at ? 0 : 500;
}
