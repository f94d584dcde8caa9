/* A retry policy in C: no SDK, no C library. README.md tells what it decides.
 *
 * An instance lives for one call. So static variables are fresh each time, and what is allocated is never freed. */

#include "reprise_policy.h"

/* ------------------------------------------------------------------ memory */

/* Where the linker's data ends. */
extern unsigned char __heap_base;

static uintptr_t next;

/* A new block; the sandbox ends the call where there is no more memory. */
static void *allocate(size_t align, size_t size) {
    const size_t page = 65536;
    uintptr_t start = ((next ? next : (uintptr_t)&__heap_base) + align - 1) & ~(align - 1);
    uintptr_t available = __builtin_wasm_memory_size(0) * page;
    if (start + size > available) {
        size_t missing = start + size - available;
        if (__builtin_wasm_memory_grow(0, (missing + page - 1) / page) == SIZE_MAX) {
            __builtin_trap();
        }
    }
    next = start + size;
    return (void *)start;
}

/* The broker asks for new blocks only. */
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {
    (void)old, (void)old_size;
    return allocate(align, size);
}

/* ------------------------------------------------------------------- texts */

static bool starts_with(text whole, text start) {
    if (whole.length < start.length) {
        return false;
    }
    for (uint32_t i = 0; i < start.length; i++) {
        if (whole.at[i] != start.at[i]) {
            return false;
        }
    }
    return true;
}

static bool equal(text left, text right) {
    return left.length == right.length && starts_with(left, right);
}

/* A number in decimal. */
static text decimal(uint32_t number) {
    char *end = (char *)allocate(1, 10) + 10, *at = end;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return (text){at, (uint32_t)(end - at)};
}

/* -------------------------------------------------------------- parameters */

typedef struct {
    uint32_t max_attempts;
    uint32_t delay; /* in seconds */
} settings;

static const settings DEFAULTS = {.max_attempts = 5, .delay = 2};

/* What is left of the parameters' JSON text. */
typedef struct {
    const char *at;
    const char *end;
} rest;

static void skip_spaces(rest *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\t' || *json->at == '\r')) {
        json->at++;
    }
}

/* Whether this character comes next; it is then passed. */
static bool take(rest *json, char character) {
    skip_spaces(json);
    if (json->at == json->end || *json->at != character) {
        return false;
    }
    json->at++;
    return true;
}

/* Reads what stands between two quotes, where nothing is escaped. */
static bool take_name(rest *json, text *name) {
    if (!take(json, '"')) {
        return false;
    }
    name->at = json->at;
    while (json->at < json->end && *json->at != '"' && *json->at != '\\') {
        json->at++;
    }
    name->length = (uint32_t)(json->at - name->at);
    return take(json, '"');
}

/* Reads a whole number of at most six digits. */
static bool take_number(rest *json, uint32_t *number) {
    skip_spaces(json);
    const char *start = json->at;
    *number = 0;
    while (json->at < json->end && json->at - start < 6 && *json->at >= '0' && *json->at <= '9') {
        *number = *number * 10 + (uint32_t)(*json->at++ - '0');
    }
    return json->at > start;
}

/* Reads an object of whole numbers. Gives the problem, empty if there is none. */
static text read_settings(text params, settings *read) {
    const text shape = TEXT("params are like {\"max_attempts\":5,\"delay\":2}, in whole numbers");
    rest json = {params.at, params.at + params.length};
    *read = DEFAULTS;
    if (!take(&json, '{')) {
        return shape;
    }
    if (take(&json, '}')) {
        return TEXT("");
    }
    do {
        text name;
        uint32_t number;
        if (!take_name(&json, &name)) {
            return shape;
        }
        if (!take(&json, ':') || !take_number(&json, &number)) {
            return shape;
        }
        if (equal(name, TEXT("max_attempts"))) {
            if (number < 1 || number > 1000) {
                return TEXT("max_attempts is from 1 to 1000");
            }
            read->max_attempts = number;
        } else if (equal(name, TEXT("delay"))) {
            if (number < 1 || number > 3600) {
                return TEXT("delay is from 1 to 3600 seconds");
            }
            read->delay = number;
        } else {
            return TEXT("known params are max_attempts and delay");
        }
    } while (take(&json, ','));
    return take(&json, '}') ? TEXT("") : shape;
}

const verdict *check(const char *at, uint32_t length) {
    static verdict answer;
    settings read;
    answer.problem = read_settings((text){at, length}, &read);
    answer.refused = answer.problem.length > 0;
    return &answer;
}

/* --------------------------------------------------------------- decisions */

/* The one answer of this call. */
static decision answer;

static const decision *retry(uint64_t delay) {
    answer.action = RETRY;
    answer.retry = delay;
    return &answer;
}

/* Given up, labelled with the failure's class and a number that is called so. */
static const decision *give_up(const context *cx, text queue, text reason, text called, uint32_t number) {
    static entry labels[2];
    labels[0].name = TEXT("class");
    labels[0].value = cx->failure.class;
    labels[1].name = called;
    labels[1].value = decimal(number);
    answer.action = DEAD_LETTER;
    answer.dead_letter.queue.some = queue.length > 0;
    answer.dead_letter.queue.value = queue;
    answer.dead_letter.reason = reason;
    answer.dead_letter.labels.at = labels;
    answer.dead_letter.labels.length = 2;
    return &answer;
}

/* Evenly from 0 to most, from the seed alone: the first number of splitmix64, as in the SDK for Rust. */
static uint64_t random_up_to(uint64_t most, uint64_t seed) {
    uint64_t bits = seed + 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    return (bits >> 32) * (most + 1) >> 32; /* most is far below 2^32 */
}

const decision *decide(const context *cx) {
    const uint64_t longest = 10 * 60 * 1000;
    switch (cx->failure.cause) {
    case RELEASED:
        return retry(0);
    case MESSAGE_EXPIRED:
        return give_up(cx, TEXT(""), TEXT("expired"), TEXT("failures"), cx->failures);
    }
    if (equal(cx->failure.class, TEXT("validation")) || starts_with(cx->failure.class, TEXT("http_4"))) {
        return give_up(cx, TEXT("rejected"), TEXT("can never succeed"), TEXT("attempt"), cx->attempt);
    }
    settings settings;
    read_settings(cx->params, &settings); /* `check` has seen them: a problem leaves defaults */
    if (cx->failures >= settings.max_attempts) {
        return give_up(cx, TEXT("exhausted"), TEXT("max_attempts"), TEXT("failures"), cx->failures);
    }
    if (cx->failure.retry_after.some) {
        uint64_t hint = cx->failure.retry_after.value;
        return retry(hint < longest ? hint : longest);
    }
    /* Doubled for each failure after the first, and at least half of it waited for certain. */
    uint64_t delay = settings.delay * 1000;
    for (uint32_t i = 1; i < cx->failures && delay < longest; i++) {
        delay *= 2;
    }
    if (delay > longest) {
        delay = longest;
    }
    answer.note.some = true;
    answer.note.value = TEXT("at least half of the delay, the rest at random");
    return retry(delay / 2 + random_up_to(delay - delay / 2, cx->seed));
}

/* ------------------------------------------------------------- description */

static const text QUEUES[] = {
    TEXT_OF("rejected"),
    TEXT_OF("exhausted"),
};

static const param PARAMS[] = {
    {
        .name = TEXT_OF("max_attempts"),
        .kind = KIND_NUMBER,
        .default_json = {true, TEXT_OF("5")},
        .doc = TEXT_OF("after this many failures the delivery goes to the queue exhausted"),
    },
    {
        .name = TEXT_OF("delay"),
        .kind = KIND_NUMBER,
        .default_json = {true, TEXT_OF("2")},
        .doc = TEXT_OF("the first delay in whole seconds; it doubles each time"),
    },
};

const description *describe(void) {
    static description answer;
    answer.name = TEXT("policy-in-c");
    answer.version = TEXT("0.1.0");
    answer.summary = TEXT("Retries with a delay that doubles, in plain C.");
    answer.queues.at = QUEUES;
    answer.queues.length = sizeof QUEUES / sizeof *QUEUES;
    answer.params.at = PARAMS;
    answer.params.length = sizeof PARAMS / sizeof *PARAMS;
    return &answer;
}
