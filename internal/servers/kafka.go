package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Kafka is a broker with its ZooKeeper. It can be killed and started again, with the same port
// and messages.
type Kafka struct {
	Address string

	java   string
	home   string
	folder string
	keeper *exec.Cmd
	broker *exec.Cmd
}

// FindKafka returns where a broker is unpacked, which KAFKA_HOME says, and a Java to run it.
func FindKafka() (java, home string, ok bool) {
	java, ok = Find("java")
	home = os.Getenv("KAFKA_HOME")
	return java, home, ok && home != ""
}

// StartKafka starts a broker that keeps its files in folder. The caller has to Close it.
func StartKafka(java, home, folder string) (*Kafka, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	keeperPort, err := FreePort()
	if err != nil {
		return nil, err
	}
	k := &Kafka{Address: address(port), java: java, home: home, folder: folder}
	for name, lines := range map[string][]string{
		"log4j.properties": {"log4j.rootLogger=WARN, out",
			"log4j.appender.out=org.apache.log4j.ConsoleAppender",
			"log4j.appender.out.layout=org.apache.log4j.SimpleLayout"},
		"keeper.properties": {"dataDir=" + k.file("keeper"), "clientPortAddress=127.0.0.1",
			fmt.Sprint("clientPort=", keeperPort)},
		"broker.properties": {"broker.id=0", "listeners=PLAINTEXT://" + k.Address,
			"zookeeper.connect=" + address(keeperPort), "num.partitions=3",
			"zookeeper.session.timeout.ms=2000", "log.dirs=" + k.file("messages")},
	} {
		if err := os.WriteFile(k.file(name), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			return nil, err
		}
	}
	k.keeper, err = k.run("org.apache.zookeeper.server.quorum.QuorumPeerMain", "keeper.properties",
		address(keeperPort))
	if err == nil {
		err = k.Start()
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Start starts the broker again after Kill.
func (k *Kafka) Start() (err error) {
	// A broker that was killed is known to ZooKeeper until its session ends.
	time.Sleep(3 * time.Second)
	k.broker, err = k.run("kafka.Kafka", "broker.properties", k.Address)
	return err
}

// run starts a Java program and waits until it listens.
func (k *Kafka) run(class, config, address string) (*exec.Cmd, error) {
	cmd := exec.Command(k.java, "-Xmx256m", "-XX:TieredStopAtLevel=1",
		"-Dlog4j.configuration=file:"+k.file("log4j.properties"),
		"-cp", filepath.Join(k.home, "libs", "*"), class, k.file(config))
	out, err := os.OpenFile(k.file("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(bootTime); time.Now().Before(end); {
		if conn, err := net.Dial("tcp", address); err == nil {
			return cmd, conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	said, _ := os.ReadFile(k.file("output"))
	return cmd, errors.New(class + " does not start: " + string(said))
}

func (k *Kafka) file(name string) string { return filepath.Join(k.folder, name) }

// Kill ends the broker as kill -9 does.
func (k *Kafka) Kill() { kill(k.broker) }

// Close ends everything.
func (k *Kafka) Close() {
	kill(k.broker)
	kill(k.keeper)
}

func kill(cmd *exec.Cmd) {
	if cmd != nil && cmd.ProcessState == nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}
