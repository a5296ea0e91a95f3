# shellcheck shell=sh disable=SC2154,SC2164
version "$(go version | sed 's/^go version go//')"
mkdir hello && cd hello
cat >main.go <<'GO'
package main

import "fmt"

func main() {
	sum := make(chan int)
	go func() { sum <- 40 + 2 }()
	fmt.Println("hello", <-sum)
}
GO
cat >main_test.go <<'GO'
package main

import "testing"

func TestSum(t *testing.T) {
	if 40+2 != 42 {
		t.Fatal("sum")
	}
}
GO
GOFLAGS=-mod=mod go mod init example.org/hello >/dev/null 2>&1
go build -o hello .
is "the program" "$(./hello)" "hello 42"
go test . >out || fail "$(tail -n 1 out)"
