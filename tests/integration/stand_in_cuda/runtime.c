/* A stand-in for libcudart.so.12: it looks the driver up by name, as the real one does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static __thread int last;

static void *driver(const char *name) {
    void *symbol = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*find)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
    find("cuGetProcAddress", (void **)&find, 12000, 0, NULL);
    find(name, &symbol, 12000, 0, NULL);
    return symbol;
}

static int keep(int code) { return code ? (last = code) : 0; }

int cudaGetLastError(void) {
    int code = last;
    last = 0;
    return code;
}
int cudaMalloc(void **at, size_t size) {
    return keep(((int (*)(void **, size_t))driver("cuMemAlloc"))(at, size));
}
int cudaMallocAsync(void **at, size_t size, void *stream) {
    return keep(((int (*)(void **, size_t, void *))driver("cuMemAllocAsync"))(at, size, stream));
}
int cudaMallocFromPoolAsync(void **at, size_t size, void *pool, void *stream) {
    void *real = driver("cuMemAllocFromPoolAsync");
    return keep(((int (*)(void **, size_t, void *, void *))real)(at, size, pool, stream));
}
int cudaMallocManaged(void **at, size_t size, unsigned flags) {
    return keep(((int (*)(void **, size_t, unsigned))driver("cuMemAllocManaged"))(at, size, flags));
}
int cudaFree(void *at) { return keep(((int (*)(void *))driver("cuMemFree"))(at)); }
int cudaFreeAsync(void *at, void *stream) {
    return keep(((int (*)(void *, void *))driver("cuMemFreeAsync"))(at, stream));
}
