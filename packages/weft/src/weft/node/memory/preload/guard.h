/* What the parts of the library that is preloaded know of each other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define FULL 2 /* cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY */
#define DEVICES 32
#define LINE 512 /* bytes of a message to or from the book */

/* functions.c: those behind ours */
extern void *(*plain_dlsym)(void *, const char *);
void find_dlsym(void);
void *find(void **kept, const char *library, const char *name);
#define RUNTIME(name) ({ static void *kept; find(&kept, "libcudart", name); })
#define DRIVER(name) ({ static void *kept; find(&kept, "libcuda.so", name); })
int device_now(void);
void memory_now(int device, size_t *left, size_t *total);
double now(void);
void pause_s(double seconds);

/* holdings.c: what this process holds, and the line by which the book knows it */
int is_guarded(void);
int reach_book(void);
int say(int fd, char *text, int flags);
const char *variable(const char *name, const char *otherwise);
const char *name_of(int device);
int asks_first(int device, size_t size);
size_t held_on(int device);
void count(uint64_t key, size_t size, int device);
void discount(uint64_t key);
