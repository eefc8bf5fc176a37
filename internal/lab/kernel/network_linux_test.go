package kernel

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// asHost is set in the processes that are hosts.
const asHost = "REFIT_HOSTS_TEST"

func init() { children[asHost] = runHost }

func runHost(part string) {
	switch part {
	case "take":
		fmt.Println(take())
	case "give":
		fmt.Println(give())
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // its wire is there, and counted, as long as it is
}

const amount = 5 << 20

func take() error {
	bufio.NewScanner(os.Stdin).Scan()
	l, err := net.Listen("tcp", HostAddress(1)+":7000")
	if err != nil {
		return err
	}
	fmt.Println("listening")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != amount {
		err = fmt.Errorf("%d bytes came", n)
	}
	return err
}

func give() error {
	bufio.NewScanner(os.Stdin).Scan()
	c, err := net.DialTimeout("tcp", HostAddress(1)+":7000", 30*time.Second)
	if err != nil {
		return err
	}
	if _, err := c.Write(make([]byte, amount)); err != nil {
		return err
	}
	return c.Close()
}

// Two hosts reach each other, no faster than their wires are, and every byte of it
// is counted.
func TestTwoHosts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces are made")
	}
	n, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	say := map[int]io.Writer{}
	hear := map[int]*bufio.Scanner{}
	for k, role := range []string{1: "take", 2: "give"} {
		if role == "" {
			continue
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), asHost+"="+role)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := n.Start(cmd, k, 100); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		say[k], hear[k] = in, bufio.NewScanner(out)
	}
	began := time.Now()
	fmt.Fprintln(say[1], "go")
	hear[1].Scan()
	fmt.Fprintln(say[2], "go")
	for k := range hear {
		if hear[k].Scan(); hear[k].Text() != "<nil>" {
			t.Fatalf("host %d: %s", k, hear[k].Text())
		}
	}
	if took, least := time.Since(began), 350*time.Millisecond; took < least {
		t.Errorf("5 MiB took %s over a wire of 100 Mbit/s: it has no limit", took)
	}
	if sent, err := n.SentBytes(2); err != nil || sent < amount || sent > amount*12/10 {
		t.Errorf("the giver has put %d bytes on the wire, %v", sent, err)
	}
	if taken, err := n.ReceivedBytes(1); err != nil || taken < amount || taken > amount*12/10 {
		t.Errorf("to the taker %d bytes have come, %v", taken, err)
	}
}
