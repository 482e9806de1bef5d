/* What this process holds of each device, and the line by which the book knows it. */
#include "guard.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NEWS (64 << 20)      /* bytes held more or less: say so */
#define SMALL_NEWS (1 << 20) /* bytes given back while others wait for them */
#define LISTEN (1 << 20)     /* bytes asked for: hear first whether others wait */
#define TRY_AGAIN_S 2.0      /* between two tries to reach a book that is not there */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t key; size_t size; int device; } *kept; /* by address; size 0: given back */
static size_t room, used;
static int64_t held[DEVICES], told[DEVICES];
static char names[DEVICES][33], book[108], heard[LINE];
static int ask_first[DEVICES], line_fd = -1, guarded = -1;
static double tried_at = -TRY_AGAIN_S;
static size_t heard_size;

static void start_over(void) { /* a forked child has none of its parent's memory */
    if (line_fd >= 0) close(line_fd);
    line_fd = guarded = -1;
    free(kept);
    kept = NULL;
    room = used = heard_size = 0;
    tried_at = -TRY_AGAIN_S;
    memset(held, 0, sizeof held);
    memset(told, 0, sizeof told);
    memset(ask_first, 0, sizeof ask_first);
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void at_start(void) { pthread_atfork(NULL, NULL, start_over); }

/* Read when it first matters: a process may be forked before it has its variables. */
int is_guarded(void) {
    if (guarded < 0) {
        const char *path = getenv("WEFT_MEMORY");
        if (path && *path && strlen(path) < sizeof book) strcpy(book, path);
        guarded = *book != 0;
    }
    return guarded;
}

int reach_book(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, book);
    /* A book that stands still must not keep us: connecting does not block. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    return fd;
}

const char *variable(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value && strlen(value) < LINE / 2 ? value : otherwise;
}

int say(int fd, char *text, int flags) {
    size_t size = strlen(text);
    for (size_t i = 0; i + 1 < size; i++)
        if (text[i] == '\n') text[i] = '?';
    return send(fd, text, size, MSG_NOSIGNAL | flags) == (ssize_t)size;
}

const char *name_of(int device) {
    static __thread char text[33];
    unsigned char id[16] = {0};
    if (*names[device]) return names[device];
    int (*get)(void *, int) = DRIVER("cuDeviceGetUuid_v2");
    if (!get) get = DRIVER("cuDeviceGetUuid");
    /* Before the first call of CUDA there is no driver to ask: that is no name to keep. */
    int known = get && !get(id, device);
    if (!known) id[15] = (unsigned char)device;
    for (int i = 0; i < 16; i++) sprintf(text + 2 * i, "%02x", id[i]);
    return known ? strcpy(names[device], text) : text;
}

static void hang_up(void) {
    if (line_fd >= 0) close(line_fd);
    line_fd = -1;
    heard_size = 0;
    memset(ask_first, 0, sizeof ask_first);
    memset(told, 0, sizeof told);
}

static void greet(void) {
    char text[LINE];
    if (line_fd >= 0 || now() - tried_at < TRY_AGAIN_S) return;
    tried_at = now();
    if ((line_fd = reach_book()) < 0) return;
    snprintf(text, sizeof text, "hello %s %s\n", variable("WEFT_ATTEMPT", "0"),
             variable("WEFT_JOB", "?"));
    if (!say(line_fd, text, 0)) hang_up();
}

/* The devices that others wait for: the book says `ask DEVICE`, and later `go DEVICE`. A look at the
 * socket is a system call, so there is one in each tick of the coarse clock (1 to 10 ms) at most. */
static void listen_to_book(void) {
    static struct timespec last;
    struct timespec tick;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    if (tick.tv_nsec == last.tv_nsec && tick.tv_sec == last.tv_sec) return;
    last = tick;
    while (line_fd >= 0) {
        ssize_t got = recv(line_fd, heard + heard_size, sizeof heard - heard_size - 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) {
            hang_up();
            return;
        }
        heard[heard_size += (size_t)got] = 0;
        for (char *end; (end = strchr(heard, '\n')); memmove(heard, end + 1, strlen(end))) {
            char word[8], name[33];
            *end = 0;
            if (sscanf(heard, "%7s %32s", word, name) == 2)
                for (int i = 0; i < DEVICES; i++)
                    if (!strcmp(names[i], name)) ask_first[i] = !strcmp(word, "ask");
        }
        heard_size = strlen(heard);
        if (heard_size + 1 >= sizeof heard) hang_up();
    }
}

static void tell_held(int device) {
    char text[LINE];
    int64_t more = held[device] - told[device];
    int64_t least = ask_first[device] && more < 0 ? SMALL_NEWS : NEWS;
    if (more < least && -more < least) return;
    greet();
    if (line_fd < 0) return;
    snprintf(text, sizeof text, "held %s %lld\n", name_of(device), (long long)held[device]);
    if (say(line_fd, text, 0))
        told[device] = held[device];
    else if (errno != EAGAIN)
        hang_up();
}

static size_t place_of(uint64_t key) {
    size_t at = (key >> 9 ^ (key * 0x9E3779B97F4A7C15u) >> 20) & (room - 1);
    while (kept[at].key && kept[at].key != key) at = (at + 1) & (room - 1);
    return at;
}

static void put(uint64_t key, size_t size, int device) {
    size_t at = place_of(key);
    used += !kept[at].key;
    kept[at].key = key;
    kept[at].size = size;
    kept[at].device = device;
}

/* Another table: larger if need be, without what was given back. */
static int make_room(void) {
    size_t before = room, live = 0;
    __typeof__(kept) old = kept;
    for (size_t i = 0; i < before; i++) live += old[i].size != 0;
    size_t after = 4 * (live + 1) > before ? (before ? 2 * before : 1024) : before;
    __typeof__(kept) fresh = calloc(after, sizeof *kept);
    if (!fresh) return 0;
    kept = fresh;
    room = after;
    used = 0;
    for (size_t i = 0; i < before; i++)
        if (old[i].size) put(old[i].key, old[i].size, old[i].device);
    free(old);
    return 1;
}

int asks_first(int device, size_t size) {
    if (size < LISTEN) return 0;
    pthread_mutex_lock(&lock);
    name_of(device);
    greet();
    listen_to_book();
    int asks = ask_first[device];
    pthread_mutex_unlock(&lock);
    return asks;
}

size_t held_on(int device) {
    pthread_mutex_lock(&lock);
    int64_t own = held[device];
    pthread_mutex_unlock(&lock);
    return own > 0 ? (size_t)own : 0;
}

void count(uint64_t key, size_t size, int device) {
    if (!key || !size) return;
    pthread_mutex_lock(&lock);
    if (2 * (used + 1) <= room || make_room()) {
        put(key, size, device);
        held[device] += (int64_t)size;
        tell_held(device);
    }
    pthread_mutex_unlock(&lock);
}

void discount(uint64_t key) {
    pthread_mutex_lock(&lock);
    size_t at = room && key ? place_of(key) : 0;
    if (room && key && kept[at].size) {
        held[kept[at].device] -= (int64_t)kept[at].size;
        kept[at].size = 0;
        listen_to_book();
        tell_held(kept[at].device);
    }
    pthread_mutex_unlock(&lock);
}
