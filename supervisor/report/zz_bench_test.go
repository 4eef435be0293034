package report
import ("testing";"context";"os/exec";"io";"time";"fmt"
"github.com/rsswarden/rsswarden/supervisor/record")
func zz(dir string) *exec.Cmd { c:=exec.Command("/tmp/bench-h/rsswarden", "export-record", dir); return c }
func BenchmarkZZ(b *testing.B){
 for b.Loop() {
 t0:=time.Now()
 r,err:=record.Read(context.Background(), "/tmp/bench-h/full", zz)
 if err!=nil {b.Fatal(err)}
 t1:=time.Now()
 n:=0
 for range r.Samples(){n++}
 t2:=time.Now()
 runs:=[]*record.Run{r}
 rep:=Build(runs,nil,time.Now())
 t3:=time.Now()
 s:=Series(runs)
 t4:=time.Now()
 WriteHTML(io.Discard,rep,&s)
 t5:=time.Now()
 fmt.Println(n,"read",t1.Sub(t0),"pass",t2.Sub(t1),"build",t3.Sub(t2),"series",t4.Sub(t3),"html",t5.Sub(t4))
 }
}
