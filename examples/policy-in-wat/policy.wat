;; A retry policy written by hand: no compiler, no SDK, no library. It shows what the contract
;; (policy-sdk/wit/policy.wit) asks of a module in the end; README.md tells what it decides.
;;
;; A policy exports its memory, a function that hands out memory, and the three functions of the contract. Records,
;; strings and lists lie in memory as the canonical ABI says: fields in order, each aligned to its size; a string is
;; its address and its length in bytes; an option or a variant is a tag in one byte, then its payload.
;;
;; An instance lives for one call, so nothing is ever freed, and the answers can be filled in where they lie:
;;
;;   1024  the decision, 104 bytes: a retry without pause, memo or note that holds its key, until `decide` says otherwise
;;   1152  the answer of `check`, 12 bytes: ok, until `check` says otherwise
;;   1184  the description, 40 bytes; 1232 its one queue; 1248 its one parameter
;;   1296  the two labels of a dead letter, 16 bytes each
;;   2048  texts
;;   4096  the heap, where the broker puts the context
(module
  (memory (export "memory") 1)

  (global $heap (mut i32) (i32.const 4096))

  ;; ------------------------------------------------------------------ memory

  ;; Gives the broker room for what it passes in. It never asks to move or to free.
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $start i32)
    ;; Up to the next multiple of the alignment, which is a power of two.
    (local.set $start
      (i32.and
        (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $heap (i32.add (local.get $start) (local.get $size)))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then
        ;; Whole pages for what is missing. Where the sandbox says no, the trap says so too.
        (if (i32.eq (i32.const -1)
              (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $size) (i32.const 65536)))))
          (then (unreachable)))))
    (local.get $start))

  ;; Whether the $length bytes at $left and at $right are the same.
  (func $same (param $left i32) (param $right i32) (param $length i32) (result i32)
    (block $differ
      (loop $next
        (if (i32.eqz (local.get $length)) (then (return (i32.const 1))))
        (br_if $differ (i32.ne (i32.load8_u (local.get $left)) (i32.load8_u (local.get $right))))
        (local.set $left (i32.add (local.get $left) (i32.const 1)))
        (local.set $right (i32.add (local.get $right) (i32.const 1)))
        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; Stores an address and a length: a string, or a list.
  (func $set (param $at i32) (param $text i32) (param $length i32)
    (i32.store (local.get $at) (local.get $text))
    (i32.store offset=4 (local.get $at) (local.get $length)))

  ;; -------------------------------------------------------------- parameters

  ;; The parameters are JSON text without spaces between its parts, and this policy takes two kinds of it: {} and
  ;; {"delay":N} with a whole number of seconds. Gives the seconds, 5 for {}, or 0 for anything else.
  (func $delay (param $params i32) (param $length i32) (result i64)
    (local $end i32) (local $digit i32) (local $seconds i64)
    (if (i32.eq (local.get $length) (i32.const 2))
      (then (return (i64.const 5))))
    ;; {"delay": is nine bytes, then come one to five digits, then a brace.
    (if (i32.or (i32.lt_u (local.get $length) (i32.const 11)) (i32.gt_u (local.get $length) (i32.const 15)))
      (then (return (i64.const 0))))
    (if (i32.eqz (call $same (local.get $params) (i32.const 2048) (i32.const 9)))
      (then (return (i64.const 0))))
    (local.set $end (i32.sub (i32.add (local.get $params) (local.get $length)) (i32.const 1)))
    (if (i32.ne (i32.load8_u (local.get $end)) (i32.const 0x7d))
      (then (return (i64.const 0))))
    (local.set $params (i32.add (local.get $params) (i32.const 9)))
    (loop $next
      (local.set $digit (i32.sub (i32.load8_u (local.get $params)) (i32.const 0x30)))
      ;; What lies before the digits is a large number here.
      (if (i32.gt_u (local.get $digit) (i32.const 9))
        (then (return (i64.const 0))))
      (local.set $seconds
        (i64.add (i64.mul (local.get $seconds) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
      (local.set $params (i32.add (local.get $params) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $params) (local.get $end))))
    (local.get $seconds))

  ;; check: func(params: string) -> result<_, string>
  (func (export "reprise:policy/policy@0.1.0#check") (param $params i32) (param $length i32) (result i32)
    (if (i64.eqz (call $delay (local.get $params) (local.get $length)))
      (then
        (i32.store8 (i32.const 1152) (i32.const 1))
        (call $set (i32.const 1156) (i32.const 2064) (i32.const 60))))
    (i32.const 1152))

  ;; ---------------------------------------------------------------- decisions

  ;; Answers a retry after $millis.
  (func $retry (param $millis i64) (result i32)
    (i64.store (i32.const 1032) (local.get $millis))
    (i32.const 1024))

  ;; Answers a dead letter in the default queue, for the reason at $reason.
  (func $dead_letter (param $reason i32) (param $length i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 1))              ;; the second case of `action`
    (i32.store8 (i32.const 1032) (i32.const 0))              ;; queue: none
    (call $set (i32.const 1044) (local.get $reason) (local.get $length))
    (call $set (i32.const 1052) (i32.const 1296) (i32.const 0)) ;; labels: none of the two
    (i32.const 1024))

  ;; decide: func(context: context) -> decision
  ;;
  ;; The context has 280 bytes. Of it: 12 the message's topic; 104 the cause (0 nacked, 1 lease-expired, 2 disconnected,
  ;; 3 released, 4 message-expired); 108 the class; 144 whether there is a hint, 152 how long; 164 failures; 216 params.
  (func (export "reprise:policy/policy@0.1.0#decide") (param $context i32) (result i32)
    (local $cause i32) (local $failures i32)
    (local.set $cause (i32.load8_u offset=104 (local.get $context)))
    (local.set $failures (i32.load offset=164 (local.get $context)))

    ;; Nobody failed: again at once.
    (if (i32.eq (local.get $cause) (i32.const 3))
      (then (return (call $retry (i64.const 0)))))

    (if (i32.eq (local.get $cause) (i32.const 4))
      (then (return (call $dead_letter (i32.const 2304) (i32.const 7)))))

    ;; The third failure is the last: queue `struck-out`, labels `class` and `topic`.
    (if (i32.ge_u (local.get $failures) (i32.const 3))
      (then
        (drop (call $dead_letter (i32.const 2312) (i32.const 14)))
        (i32.store8 (i32.const 1032) (i32.const 1))          ;; queue: some
        (call $set (i32.const 1036) (i32.const 2328) (i32.const 10))
        (call $set (i32.const 1296) (i32.const 2344) (i32.const 5))
        (call $set (i32.const 1304)
          (i32.load offset=108 (local.get $context)) (i32.load offset=112 (local.get $context)))
        (call $set (i32.const 1312) (i32.const 2352) (i32.const 5))
        (call $set (i32.const 1320)
          (i32.load offset=16 (local.get $context)) (i32.load offset=20 (local.get $context)))
        (call $set (i32.const 1052) (i32.const 1296) (i32.const 2))
        (return (i32.const 1024))))

    ;; A hint is the delay. The broker holds it to the subscription's max_delay.
    (if (i32.load8_u offset=144 (local.get $context))
      (then (return (call $retry (i64.load offset=152 (local.get $context))))))

    ;; The delay, and after the second failure twice that. With it a note for people.
    (i32.store8 (i32.const 1108) (i32.const 1))
    (call $set (i32.const 1112) (i32.const 2360) (i32.const 25))
    (call $retry
      (i64.mul
        (i64.mul
          (call $delay
            (i32.load offset=216 (local.get $context)) (i32.load offset=220 (local.get $context)))
          (i64.extend_i32_u (local.get $failures)))
        (i64.const 1000))))

  ;; -------------------------------------------------------------- description

  ;; describe: func() -> description
  (func (export "reprise:policy/policy@0.1.0#describe") (result i32)
    (call $set (i32.const 1184) (i32.const 2400) (i32.const 13))    ;; name
    (call $set (i32.const 1192) (i32.const 2416) (i32.const 5))     ;; version
    (call $set (i32.const 1200) (i32.const 2432) (i32.const 39))    ;; summary
    (call $set (i32.const 1208) (i32.const 1232) (i32.const 1))     ;; queues
    (call $set (i32.const 1232) (i32.const 2328) (i32.const 10))
    (call $set (i32.const 1216) (i32.const 1248) (i32.const 1))     ;; params
    (call $set (i32.const 1248) (i32.const 2050) (i32.const 5))     ;; its name
    (i32.store8 (i32.const 1256) (i32.const 1))                     ;; its kind, a number
    (i32.store8 (i32.const 1260) (i32.const 1))                     ;; its default, some
    (call $set (i32.const 1264) (i32.const 2480) (i32.const 1))
    (call $set (i32.const 1272) (i32.const 2496) (i32.const 51))    ;; its meaning
    (i32.const 1184))

  ;; -------------------------------------------------------------------- texts

  (data (i32.const 2048) "{\"delay\":")
  (data (i32.const 2064) "params are {} or {\"delay\":SECONDS}, a number from 1 to 99999")
  (data (i32.const 2304) "expired")
  (data (i32.const 2312) "three failures")
  (data (i32.const 2328) "struck-out")
  (data (i32.const 2344) "class")
  (data (i32.const 2352) "topic")
  (data (i32.const 2360) "three failures are enough")
  (data (i32.const 2400) "policy-in-wat")
  (data (i32.const 2416) "0.1.0")
  (data (i32.const 2432) "Gives up after three failures, by hand.")
  (data (i32.const 2480) "5")
  (data (i32.const 2496) "the delay after the first failure, in whole seconds"))
