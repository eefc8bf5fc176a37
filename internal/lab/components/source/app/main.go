// Command app is the lab's test workload: an HTTP server on $LISTEN that
// answers with its version and the pod it runs in.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	host, _ := os.Hostname()
	listen := os.Getenv("LISTEN")
	if listen == "" {
		listen = ":8080"
	}
	server := &http.Server{Addr: listen, ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "%s %s\n", os.Getenv("VERSION"), host)
		})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		<-ctx.Done()
		// Endpoints are withdrawn while the pod ends: go on answering for a moment.
		time.Sleep(2 * time.Second)
		server.Close()
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
