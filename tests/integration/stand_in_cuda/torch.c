/* A stand-in for libc10_cuda.so: an allocator that frees its cache after a refusal and asks again. */
#include <stddef.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaGetLastError(void);

static void *cache;

void torch_keep(void *at) { cache = at; }
int torch_alloc(void **at, size_t size) {
    int code = cudaMalloc(at, size);
    if (code != 2) return code;
    cudaGetLastError();
    if (cache) cudaFree(cache);
    cache = NULL;
    code = cudaMalloc(at, size);
    if (code) cudaGetLastError();
    return code;
}
