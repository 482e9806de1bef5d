/* An allocation of device memory that does not fit waits until it does: for LD_PRELOAD.
 *
 * Calls of the CUDA runtime and driver that allocate or free are counted by device. One that the
 * device refuses asks the book of this machine's devices (`weft.node.memory`, a Unix socket named
 * in WEFT_MEMORY) for a turn and sleeps until it has one; the book decides who tries next, the
 * driver whether it fits. While others wait for a device, its allocations ask first. Without
 * WEFT_MEMORY, or when the book is gone, everything is as if this library were not there.
 *
 * PyTorch's allocator frees its caches after one refusal and asks again, so one is passed on to it.
 * Programs bind to these functions when they are loaded, or look them up by `dlsym` and
 * `cuGetProcAddress`; so both are answered with ours. A call inside another one is not counted.
 * The context of a process takes memory too, and waits in the same way.
 */
#include "guard.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))
#define LARGE (16u << 20) /* bytes: smaller ones are not looked at before they fail */
#define RESERVE 64 /* a part of a device that is left to contexts and code, which do not wait */
#define AGAIN_S 10.0 /* in which a second refusal of PyTorch's allocator waits */
#define SILENT_S 40  /* of the book, which says every 10 s that it is there */
#define CONTEXT (1u << 30) /* bytes that a process finds free when it begins to use a device */
#define TAG (1ull << 63) /* of handles, among addresses */
#define GONE_S 5.0   /* for another book to take its place */

static __thread int inside;
static __thread double refused_at;
static __thread size_t refused_size;

struct call {
    int (*run)(struct call *);
    void *real;
    void **at;
    size_t size;
    const void *more;
    unsigned long long flags;
    int runtime;
};

static int run_plain(struct call *c) {
    return ((int (*)(void **, size_t))c->real)(c->at, c->size);
}
static int run_stream(struct call *c) {
    return ((int (*)(void **, size_t, const void *))c->real)(c->at, c->size, c->more);
}
static int run_pool(struct call *c) {
    return ((int (*)(void **, size_t, const void *, void *))c->real)(
        c->at, c->size, c->more, (void *)(uintptr_t)c->flags);
}
static int run_managed(struct call *c) {
    return ((int (*)(void **, size_t, unsigned))c->real)(c->at, c->size, (unsigned)c->flags);
}
static int run_create(struct call *c) {
    return ((int (*)(void **, size_t, const void *, unsigned long long))c->real)(
        c->at, c->size, c->more, c->flags);
}

static int run_begin(struct call *c) {
    return ((int (*)(void **, int))c->real)(c->at, (int)c->flags);
}

static int again(struct call *c) {
    int (*forget)(void) = c->runtime ? RUNTIME("cudaGetLastError") : NULL;
    if (forget) forget();
    return c->run(c);
}

/* One line of the book's; 0 when it is gone, or has been silent for too long. */
static int read_line(int fd, char line[LINE]) {
    for (size_t size = 0; size + 1 < LINE;) {
        ssize_t got = recv(fd, line + size, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        if (line[size++] == '\n') {
            line[size - 1] = 0;
            return 1;
        }
    }
    return 0;
}

static int ask(int fd, int device, struct call *c) {
    char text[LINE];
    size_t left, total;
    struct timeval limit = {SILENT_S, 0};
    fcntl(fd, F_SETFL, 0); /* from here on it blocks */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    memory_now(device, &left, &total);
    snprintf(text, sizeof text, "%s %s %zu %zu %zu %s %s %s\n", c->run == run_begin ? "begin" : "want",
             name_of(device), c->size, left, total, variable("WEFT_ATTEMPT", "0"),
             variable("WEFT_MEMORY_PRIORITY", "0"), variable("WEFT_JOB", "?"));
    return say(fd, text, 0);
}

/* Wait for our turn at the book, try, and wait again; `code` is what CUDA said last. */
static int wait_in(int fd, int device, struct call *c, int code, int *gone) {
    char line[LINE];
    size_t left, total;
    *gone = !ask(fd, device, c);
    while (!*gone) {
        if (!read_line(fd, line)) {
            *gone = 1;
        } else if (!strcmp(line, "refuse")) {
            return again(c);
        } else if (!strcmp(line, "look")) {
            memory_now(device, &left, &total);
            snprintf(line, sizeof line, "no %zu\n", left);
            *gone = !say(fd, line, 0);
        } else if (!strcmp(line, "try")) {
            code = again(c);
            memory_now(device, &left, &total);
            snprintf(line, sizeof line, "%s %zu\n", code == FULL ? "no" : "got", left);
            int heard = say(fd, line, 0);
            if (code != FULL) return code;
            *gone = !heard;
        }
    }
    return code;
}

static int wait_for_memory(int device, struct call *c) {
    double gone_at = 0.0;
    int gone = 0, code = FULL;
    for (;;) {
        int fd = reach_book();
        if (fd >= 0) {
            gone_at = 0.0;
            code = wait_in(fd, device, c, code, &gone);
            close(fd);
            if (!gone) return code;
        }
        if (!gone_at) gone_at = now();
        if (!gone || now() - gone_at >= GONE_S) return again(c); /* as if we were not there */
        pause_s(0.2);
    }
}

static int by_torch(const void *caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libc10_cuda") != NULL;
}

/* True for the refusal after which PyTorch's allocator frees its caches; CUDA's own pool has none. */
static int pass_on(struct call *c, const void *caller) {
    if (!by_torch(caller) || (c->run != run_plain && c->run != run_create)) return 0;
    int first = refused_size != c->size || now() - refused_at > AGAIN_S;
    refused_size = first ? c->size : 0;
    refused_at = now();
    return first;
}

/* True if it would fit, but leave others that are on the device nothing to start with. */
static int takes_the_last(int device, size_t size) {
    size_t left, total;
    if (size < LARGE) return 0;
    memory_now(device, &left, &total);
    size_t reserve = total / RESERVE, own = held_on(device);
    int shared = total - left > own + reserve;
    return shared && size <= left && size > left - (reserve < left ? reserve : left);
}

static int allocate(struct call *c, int device, const void *caller) {
    size_t left, total;
    if (!c->real) return 1; /* cudaErrorInvalidValue: there is no such function */
    if (inside || !is_guarded()) return c->run(c);
    inside = 1;
    if (device < 0) device = device_now();
    int code = FULL, asks = 0, waits = c->run != run_managed;
    if (waits && asks_first(device, c->size)) {
        memory_now(device, &left, &total);
        asks = c->size <= left;
    }
    if (waits && !asks) asks = takes_the_last(device, c->size);
    if (!asks) code = c->run(c);
    if (code == FULL && waits) {
        memory_now(device, &left, &total);
        int ever = !total || c->size + held_on(device) <= total;
        if (ever && (asks || !pass_on(c, caller))) code = wait_for_memory(device, c);
    }
    if (code == 0) {
        if (c->run != run_create) refused_size = 0; /* one of many parts proves nothing */
        count((uint64_t)(uintptr_t)*c->at ^ (c->run == run_create ? TAG : 0), c->size, device);
    }
    inside = 0;
    return code;
}

static int release(int (*real)(void *, void *), void *what, void *stream, uint64_t tag) {
    if (!real) return 1;
    int code = real(what, stream); /* a second argument does no harm to those that take one */
    if (!inside && code == 0) discount((uint64_t)(uintptr_t)what ^ tag);
    return code;
}

#define FROM __builtin_return_address(0)
#define PLAIN(name, library, runtime)                                                              \
    OURS int name(void **at, size_t size) {                                                        \
        struct call c = {run_plain, library(#name), at, size, NULL, 0, runtime};                   \
        return allocate(&c, -1, FROM);                                                             \
    }
#define STREAM(name, library, runtime)                                                             \
    OURS int name(void **at, size_t size, void *stream) {                                          \
        struct call c = {run_stream, library(#name), at, size, stream, 0, runtime};                \
        return allocate(&c, -1, FROM);                                                             \
    }
#define POOL(name, library, runtime)                                                               \
    OURS int name(void **at, size_t size, void *pool, void *stream) {                              \
        struct call c = {run_pool, library(#name), at, size, pool, (uintptr_t)stream, runtime};    \
        return allocate(&c, -1, FROM);                                                             \
    }
#define MANAGED(name, library, runtime)                                                            \
    OURS int name(void **at, size_t size, unsigned flags) {                                        \
        struct call c = {run_managed, library(#name), at, size, NULL, flags, runtime};             \
        return allocate(&c, -1, FROM);                                                             \
    }
#define FREE(name, library)                                                                        \
    OURS int name(void *at) { return release((int (*)(void *, void *))library(#name), at, NULL, 0); }
#define FREE_LATER(name, library)                                                                  \
    OURS int name(void *at, void *stream) {                                                        \
        return release((int (*)(void *, void *))library(#name), at, stream, 0);                    \
    }

PLAIN(cudaMalloc, RUNTIME, 1)
STREAM(cudaMallocAsync, RUNTIME, 1)
POOL(cudaMallocFromPoolAsync, RUNTIME, 1)
MANAGED(cudaMallocManaged, RUNTIME, 1)
FREE(cudaFree, RUNTIME)
FREE_LATER(cudaFreeAsync, RUNTIME)
PLAIN(cuMemAlloc_v2, DRIVER, 0)
STREAM(cuMemAllocAsync, DRIVER, 0)
STREAM(cuMemAllocAsync_ptsz, DRIVER, 0)
POOL(cuMemAllocFromPoolAsync, DRIVER, 0)
POOL(cuMemAllocFromPoolAsync_ptsz, DRIVER, 0)
MANAGED(cuMemAllocManaged, DRIVER, 0)
FREE(cuMemFree_v2, DRIVER)
FREE_LATER(cuMemFreeAsync, DRIVER)
FREE_LATER(cuMemFreeAsync_ptsz, DRIVER)

OURS int cuMemCreate(void **handle, size_t size, const int *what, unsigned long long flags) {
    /* what: type of allocation, of handles, then type and number of its place; 1 is a device */
    int on_device = what && what[2] == 1 && what[3] >= 0 && what[3] < DEVICES;
    struct call c = {run_create, DRIVER("cuMemCreate"), handle, size, what, flags, 0};
    if (on_device) return allocate(&c, what[3], FROM);
    return c.real ? c.run(&c) : 1;
}

OURS int cuMemRelease(void *handle) {
    return release((int (*)(void *, void *))DRIVER("cuMemRelease"), handle, NULL, TAG);
}

/* The context of a process: it is not counted, and takes what is reserved for it. */
OURS int cuDevicePrimaryCtxRetain(void **context, int device) {
    static __thread int begins;
    struct call c = {run_begin, DRIVER("cuDevicePrimaryCtxRetain"), context, 0, NULL, (unsigned)device, 0};
    int (*state)(int, unsigned *, int *) = DRIVER("cuDevicePrimaryCtxGetState");
    int there = 0, code = FULL;
    unsigned flags;
    size_t left, total;
    if (!c.real) return 1;
    if (state && state(device, &flags, &there)) there = 0;
    if (begins || there || device < 0 || device >= DEVICES || !is_guarded()) return c.run(&c);
    begins = 1;
    memory_now(device, &left, &total);
    c.size = total / RESERVE < CONTEXT ? total / RESERVE : CONTEXT;
    if (left >= c.size) code = c.run(&c);
    if (code == FULL && total) code = wait_for_memory(device, &c);
    begins = 0;
    return code;
}

/* ---- Functions that are looked up by name */

OURS int cuGetProcAddress(const char *name, void **at, int version, uint64_t flags);
OURS int cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags, void *how);

/* By the name of the symbol, and by that for cuGetProcAddress with the first version it is for. */
static const struct { const char *symbol, *plain; int version; void *ours; } hooks[] = {
    {"cuMemAlloc_v2", "cuMemAlloc", 3020, cuMemAlloc_v2},
    {"cuMemAllocAsync", "cuMemAllocAsync", 0, cuMemAllocAsync},
    {"cuMemAllocAsync_ptsz", "cuMemAllocAsync", -1, cuMemAllocAsync_ptsz},
    {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 0, cuMemAllocFromPoolAsync},
    {"cuMemAllocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync", -1, cuMemAllocFromPoolAsync_ptsz},
    {"cuMemAllocManaged", "cuMemAllocManaged", 0, cuMemAllocManaged},
    {"cuMemFree_v2", "cuMemFree", 3020, cuMemFree_v2},
    {"cuMemFreeAsync", "cuMemFreeAsync", 0, cuMemFreeAsync},
    {"cuMemFreeAsync_ptsz", "cuMemFreeAsync", -1, cuMemFreeAsync_ptsz},
    {"cuMemCreate", "cuMemCreate", 0, cuMemCreate},
    {"cuMemRelease", "cuMemRelease", 0, cuMemRelease},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 0, cuDevicePrimaryCtxRetain},
    {"cuGetProcAddress_v2", "cuGetProcAddress", 12000, cuGetProcAddress_v2},
    {"cuGetProcAddress", "", 0, cuGetProcAddress},
};
#define HOOKS (sizeof hooks / sizeof *hooks)

static void replace(const char *name, void **at, int version, uint64_t flags) {
    int by_thread = (flags & 2) != 0; /* a stream of its own for each thread, where it takes one */
    for (int strict = by_thread; strict >= 0; strict--)
        for (size_t i = 0; i < HOOKS; i++)
            if (!strcmp(hooks[i].plain, name) && (hooks[i].version < 0) == strict &&
                version >= hooks[i].version) {
                *at = hooks[i].ours;
                return;
            }
    if (!strcmp(name, "cuGetProcAddress") && version < 12000) *at = (void *)cuGetProcAddress;
}

OURS int cuGetProcAddress(const char *name, void **at, int version, uint64_t flags) {
    int (*real)(const char *, void **, int, uint64_t) = DRIVER("cuGetProcAddress");
    int code = real ? real(name, at, version, flags) : 1;
    if (code == 0 && name && at && *at) replace(name, at, version, flags);
    return code;
}

OURS int cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags, void *how) {
    int (*real)(const char *, void **, int, uint64_t, void *) = DRIVER("cuGetProcAddress_v2");
    int code = real ? real(name, at, version, flags, how) : 1;
    if (code == 0 && name && at && *at) replace(name, at, version, flags);
    return code;
}

/* The last call is a jump, so that RTLD_NEXT still means what comes after our caller. */
OURS void *dlsym(void *handle, const char *name) {
    if (!plain_dlsym) find_dlsym();
    if (handle != RTLD_NEXT && name[0] == 'c' && name[1] == 'u')
        for (size_t i = 0; i < HOOKS; i++)
            if (!strcmp(hooks[i].symbol, name)) return plain_dlsym(handle, name) ? hooks[i].ours : NULL;
    return plain_dlsym(handle, name);
}
