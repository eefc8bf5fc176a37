package supervisor

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// serveNames answers every name question on address: the name does not exist.
// An answer at once matters: CoreDNS, which asks here, is not ready for half a
// minute when its questions time out.
func serveNames(address string, w *watch) error {
	at := net.JoinHostPort(address, "53")
	packets, err := net.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", at)
	if err != nil {
		packets.Close()
		return err
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			if reply := answerName(buffer[:n], from, w); reply != nil {
				_, _ = packets.WriteTo(reply, from)
			}
		}
	}()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			go serveNameStream(c, w)
		}
	}()
	return nil
}

func serveNameStream(c net.Conn, w *watch) {
	defer c.Close()
	for {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		var size uint16
		if binary.Read(c, binary.BigEndian, &size) != nil {
			return
		}
		question := make([]byte, size)
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		reply := answerName(question, c.RemoteAddr(), w)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answerName returns the reply, or nil if the question cannot be read.
func answerName(message []byte, from net.Addr, w *watch) []byte {
	header, questions, err := readQuestions(message)
	if err != nil {
		return nil
	}
	for _, q := range questions {
		w.question(from, strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")))
	}
	reply := dnsmessage.Message{Questions: questions, Header: dnsmessage.Header{ID: header.ID, Response: true,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true, RCode: dnsmessage.RCodeNameError}}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func readQuestions(message []byte) (dnsmessage.Header, []dnsmessage.Question, error) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil {
		return header, nil, err
	}
	if header.Response {
		return header, nil, errors.New("an answer, not a question")
	}
	questions, err := p.AllQuestions()
	return header, questions, err
}
