// Run franz-go's kfake, another implementation of Kafka's protocol, as one broker on this machine.
//
//	kfake -port 9092 -data FOLDER
//
// What clients write survives a restart in the same folder. SIGTERM ends it in order.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1 where the broker listens")
	data := flag.String("data", "", "folder where it keeps what clients write")
	flag.Parse()

	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)

	// It writes each batch to its file before it answers, so SIGKILL takes nothing that is acknowledged.
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(*port),
		kfake.DataDir(*data),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(cluster.ListenAddrs())
	<-stopped
	cluster.Close()
}
