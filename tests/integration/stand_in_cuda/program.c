/* A program that allocates as it reads: `KIND MEGABYTES` answers the slot or the error, `free SLOT`
 * frees, `cache SLOT` leaves a block to the allocator's cache, `fork` goes on as a child, `exec` as a new
 * image of the program, `clean` as one without what was preloaded, `exit` ends, `error` answers the
 * runtime's last error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cudaMalloc(void **, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaFree(void *);
int cudaFreeAsync(void *, void *);
int cudaGetLastError(void);
int torch_alloc(void **, size_t);
void torch_keep(void *);

static void *driver(const char *name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static int allocate(const char *kind, void **at, size_t size) {
    int place[8] = {1, 0, 1, 0};
    if (!strcmp(kind, "malloc")) return cudaMalloc(at, size);
    if (!strcmp(kind, "async")) return cudaMallocAsync(at, size, NULL);
    if (!strcmp(kind, "pool")) return cudaMallocFromPoolAsync(at, size, NULL, NULL);
    if (!strcmp(kind, "managed")) return cudaMallocManaged(at, size, 1);
    if (!strcmp(kind, "torch")) return torch_alloc(at, size);
    if (!strcmp(kind, "context"))
        return ((int (*)(void **, int))driver("cuDevicePrimaryCtxRetain"))(at, 0);
    if (!strcmp(kind, "driver"))
        return ((int (*)(void **, size_t))driver("cuMemAlloc_v2"))(at, size);
    if (!strcmp(kind, "by-thread"))
        return ((int (*)(void **, size_t, void *))driver("cuMemAllocAsync_ptsz"))(at, size, NULL);
    if (!strcmp(kind, "looked-up")) { /* as a runtime that is linked statically */
        int (*find)(const char *, void **, int, uint64_t, int *) = driver("cuGetProcAddress_v2");
        int (*taken)(void **, size_t) = NULL;
        return find("cuMemAlloc", (void **)&taken, 12000, 0, NULL) ? 1 : taken(at, size);
    }
    return ((int (*)(void **, size_t, const void *, unsigned long long))driver("cuMemCreate"))(
        at, size, place, 0);
}

static int release(const char *kind, void *at) {
    if (!strcmp(kind, "async") || !strcmp(kind, "pool")) return cudaFreeAsync(at, NULL);
    if (!strcmp(kind, "driver") || !strcmp(kind, "looked-up")) return ((int (*)(void *))driver("cuMemFree_v2"))(at);
    if (!strcmp(kind, "by-thread"))
        return ((int (*)(void *, void *))driver("cuMemFreeAsync_ptsz"))(at, NULL);
    if (!strcmp(kind, "create")) return ((int (*)(void *))driver("cuMemRelease"))(at);
    return cudaFree(at);
}

int main(void) {
    static void *slots[4096];
    static char kinds[4096][16];
    int next = 1, code;
    char line[64], kind[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        long number = 0;
        sscanf(line, "%15s %ld", kind, &number);
        if (!strcmp(kind, "free")) {
            printf("%d\n", release(kinds[number], slots[number]));
        } else if (!strcmp(kind, "cache")) {
            torch_keep(slots[number]);
            printf("0\n");
        } else if (!strcmp(kind, "error")) {
            printf("%d\n", cudaGetLastError());
        } else if (!strcmp(kind, "exit")) {
            return 0;
        } else if (!strcmp(kind, "fork")) {
            pid_t child = fork();
            if (child) {
                waitpid(child, NULL, 0);
                return 0;
            }
            printf("0\n");
        } else if (!strcmp(kind, "exec") || !strcmp(kind, "clean")) {
            if (*kind == 'c') unsetenv("LD_PRELOAD");
            printf("0\n");
            execl("/proc/self/exe", "program", (char *)NULL);
        } else if ((code = allocate(kind, &slots[next], (size_t)number << 20))) {
            printf("error %d\n", code);
        } else {
            strcpy(kinds[next], kind);
            printf("%d\n", next++);
        }
    }
    return 0;
}
