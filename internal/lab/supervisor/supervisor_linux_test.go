package supervisor

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/dns/dnsmessage"
)

func TestQuestionsForImageHostsAreCountedAndAnsweredAtOnce(t *testing.T) {
	w := newWatch([]string{"registry.k8s.io", "test"})
	from := &net.UDPAddr{IP: net.IPv4(10, 88, 0, 12), Port: 4000}
	for _, name := range []string{"registry.k8s.io.", "Registry.K8s.io.", "cdn.registry.k8s.io.", "example.test.", "notregistry.k8s.io.", "kubernetes.default.svc."} {
		question := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		packed, err := question.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var reply dnsmessage.Message
		if err := reply.Unpack(answerName(packed, from, w)); err != nil {
			t.Fatal(err)
		}
		if reply.ID != 7 || !reply.Response || reply.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%s: reply %+v", name, reply.Header)
		}
	}
	if reply := answerName([]byte("rubbish"), from, w); reply != nil {
		t.Errorf("rubbish was answered: %q", reply)
	}
	got := w.counts()
	want := []Attempt{{From: "10.88.0.12", To: "registry.k8s.io", Kind: "dns", Count: 2}, {From: "10.88.0.12", To: "cdn.registry.k8s.io", Kind: "dns", Count: 1},
		{From: "10.88.0.12", To: "example.test", Kind: "dns", Count: 1}}
	if diff := cmp.Diff(want, got.Details, cmpopts.IgnoreFields(Attempt{}, "First", "Last"), cmpopts.SortSlices(func(a, b Attempt) bool { return a.To < b.To })); diff != "" {
		t.Error("details (-want +got):", diff)
	}
	if got.Questions != 4 || got.Packets != 0 || len(got.AllNames) != 5 {
		t.Errorf("counts: %+v", got)
	}
}

func TestPacketsAreNamedByWhereTheyGo(t *testing.T) {
	v4 := append([]byte{0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 88, 0, 12, 192, 0, 2, 1}, 0x9c, 0x40, 0x01, 0xbb)
	v6 := make([]byte, 44)
	v6[0], v6[6] = 0x60, 17
	copy(v6[8:], net.ParseIP("fe80::1"))
	copy(v6[24:], net.ParseIP("2001:db8::2"))
	copy(v6[40:], []byte{0, 1, 0, 53})
	for sentence, c := range map[string]struct {
		packet []byte
		want   [3]string
	}{
		"TCP over IPv4":      {v4, [3]string{"10.88.0.12", "192.0.2.1:443", "tcp"}},
		"UDP over IPv6":      {v6, [3]string{"fe80::1", "[2001:db8::2]:53", "udp"}},
		"cut after the head": {v4[:20], [3]string{"10.88.0.12", "192.0.2.1", "tcp"}},
		"too short":          {v4[:7], [3]string{"?", "?", "short"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			from, to, kind := readPacket(c.packet)
			if diff := cmp.Diff(c.want, [3]string{from, to, kind}); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
}

func TestABadNetworkInTheFilterIsRefused(t *testing.T) {
	if _, err := outsideFilter([]string{"10.88.0.0/24", "everywhere"}); err == nil {
		t.Error("a network called everywhere was accepted")
	}
	filter, err := outsideFilter(append([]string{"10.88.0.0/24", "10.244.0.0/16", "10.96.0.0/16"}, neverOutside...))
	if err != nil || len(filter) == 0 {
		t.Errorf("filter of %d steps, %v", len(filter), err)
	}
}

func TestALaterProcessWithTheSameNumberIsNotMistaken(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is not alive")
	}
	if (Process{PID: os.Getpid(), Start: "1"}).Alive() {
		t.Error("another start time is the same process")
	}
	start, err := startTime("4 (a ) b) S 1 4 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2")
	if err != nil || start != "987" {
		t.Errorf("start time %q, %v", start, err)
	}
	if _, err := startTime("4 (short) S 1"); err == nil {
		t.Error("a short line was read")
	}
}

func TestTheEndOfPID1SaysWhatWasWanted(t *testing.T) {
	for how, want := range map[syscall.WaitStatus]string{
		syscall.WaitStatus(syscall.SIGHUP):  "rebooted",
		syscall.WaitStatus(syscall.SIGINT):  "powered off",
		syscall.WaitStatus(syscall.SIGKILL): "died of killed",
		1 << 8:                              "pid 1 ended with exit status 1",
	} {
		if got := describeEnd(how); got != want {
			t.Errorf("%v: %q, want %q", how, got, want)
		}
	}
}
