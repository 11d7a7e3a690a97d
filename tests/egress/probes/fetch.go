// Fetches https://HOST/echo as any program written in Go would.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get("https://" + os.Args[1] + "/echo")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	io.Copy(os.Stdout, answer.Body)
}
