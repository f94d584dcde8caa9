/* The policy contract (policy-sdk/wit/policy.wit) in C, for wasm32.
 *
 * The canonical ABI lays records out as C does: fields in order, each aligned to its size. So the structs here are the
 * contract, and the functions at the end are called with pointers to them. A text is not ended by a zero.
 *
 * Includes nothing but headers that come with any C11 compiler. */

#ifndef REPRISE_POLICY_H
#define REPRISE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------ values */

typedef struct {
    const char *at;
    uint32_t length;
} text;

/* A literal as a text; the first form is for what is initialised once. */
#define TEXT_OF(literal) {(literal), sizeof(literal) - 1}
#define TEXT(literal) ((text)TEXT_OF(literal))

typedef struct {
    bool some;
    text value;
} optional_text;

typedef struct {
    bool some;
    uint64_t value;
} optional_u64;

typedef struct {
    const uint8_t *at;
    uint32_t length;
} bytes;

typedef struct {
    bool some;
    bytes value;
} optional_bytes;

typedef struct {
    text name;
    text value;
} entry;

typedef struct {
    const entry *at;
    uint32_t length;
} entries;

/* ------------------------------------------------------- what a policy sees */

/* Spans are in milliseconds, moments in milliseconds since 1970. */

enum { NACKED, LEASE_EXPIRED, DISCONNECTED, RELEASED, MESSAGE_EXPIRED };

typedef struct {
    text id;
    text topic;
    optional_text key;
    entries attributes;
    optional_text content_type;
    uint64_t size;
    uint64_t published_at;
    optional_u64 expires_at;
    optional_bytes payload;
} message;

typedef struct {
    uint8_t cause;
    text class;
    optional_text code;
    optional_text detail;
    optional_u64 retry_after;
} failure;

typedef struct {
    uint32_t attempt;
    uint64_t at;
    uint8_t cause;
    text class;
    optional_u64 delay;
} past_failure;

typedef struct {
    const past_failure *at;
    uint32_t length;
} past_failures;

typedef struct {
    uint64_t acked;
    uint64_t failed;
    uint64_t dead_lettered;
    uint64_t backlog;
    uint64_t in_flight;
    uint64_t consecutive_failures;
} load;

typedef struct {
    text subscription;
    message message;
    failure failure;
    uint32_t attempt;
    uint32_t failures;
    uint32_t releases;
    uint32_t replays;
    past_failures history;
    optional_u64 first_leased_at;
    uint64_t now;
    uint64_t seed;
    text params;
    bytes memo;
    load load;
} context;

/* ---------------------------------------------------- what a policy answers */

enum { RETRY, DEAD_LETTER, FORWARD, DROP };

typedef struct {
    optional_text queue;
    text reason;
    entries labels;
} dead_letter;

typedef struct {
    bool some;
    uint64_t duration;
    uint32_t probes;
    text reason;
} optional_pause;

typedef struct {
    uint8_t action;
    union {
        uint64_t retry;
        dead_letter dead_letter;
        text forward;
        text drop;
    };
    optional_pause pause;
    optional_bytes memo;
    optional_text note;
    bool release_key;
} decision;

/* The answer of check: a problem is a text for the person who set the parameters. */
typedef struct {
    bool refused;
    text problem;
} verdict;

enum { KIND_TEXT, KIND_NUMBER, KIND_BOOLEAN, KIND_DURATION, KIND_OBJECT };

typedef struct {
    text name;
    uint8_t kind;
    optional_text default_json;
    text doc;
} param;

typedef struct {
    text name;
    text version;
    text summary;
    struct {
        const text *at;
        uint32_t length;
    } queues;
    struct {
        const param *at;
        uint32_t length;
    } params;
} description;

/* The sizes and places that the canonical ABI gives them. */
_Static_assert(sizeof(text) == 8 && sizeof(optional_u64) == 16, "made for wasm32");
_Static_assert(sizeof(message) == 96 && sizeof(failure) == 56 && sizeof(past_failure) == 48, "records");
_Static_assert(offsetof(context, history) == 176 && offsetof(context, params) == 216, "the context");
_Static_assert(sizeof(context) == 280 && sizeof(description) == 40 && sizeof(param) == 32, "the ends");
_Static_assert(offsetof(decision, retry) == 8 && offsetof(decision, pause) == 40, "the action");
_Static_assert(offsetof(decision, memo) == 72 && offsetof(decision, note) == 84, "what goes with it");
_Static_assert(offsetof(decision, release_key) == 96 && sizeof(decision) == 104 && sizeof(verdict) == 12, "the answers");

/* ----------------------------------------------- what a policy has to define */

#define EXPORT(name) __attribute__((export_name(name)))

EXPORT("reprise:policy/policy@0.1.0#decide") const decision *decide(const context *cx);
EXPORT("reprise:policy/policy@0.1.0#check") const verdict *check(const char *at, uint32_t length);
EXPORT("reprise:policy/policy@0.1.0#describe") const description *describe(void);

/* Where the broker puts what it passes in. */
EXPORT("cabi_realloc") void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size);

#endif
