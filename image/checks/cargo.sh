# shellcheck shell=sh disable=SC2154,SC2164
version "$(rustc --version)"
cargo new --quiet --vcs none hello
cd hello
cat >src/main.rs <<'RS'
fn main() {
    println!("hello {}", (1..=9).sum::<u32>() - 3);
}

#[test]
fn adds() {
    assert_eq!(40 + 2, 42);
}
RS
is "the program" "$(cargo run --quiet --offline)" "hello 42"
cargo test --quiet --offline >out 2>&1 || fail "$(tail -n 1 out)"
grep -q '1 passed' out || fail "cargo test says: $(tail -n 1 out)"
