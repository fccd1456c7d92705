import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryForever;

/**
 * A stranger in the election: Curator's LeaderLatch. It says whom it takes for the leader when it has its place, and by the machine's
 * clock when it stands, when it leads and when that is over. It leads so many times, each for so many seconds, or until it is told
 * to end (SIGTERM).
 *
 *     java -cp CLASSES CuratorLatch.java SERVERS PATH ID TIMEOUT TIMES HOLD
 */
public final class CuratorLatch {
    private static final int PAUSE_MS = 10;
    private static final int CONNECT_MS = 5_000;

    private final CountDownLatch toldToGo = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        new CuratorLatch().run(arguments);
    }

    private void run(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            toldToGo.countDown();
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }));
        int timeout = milliseconds(arguments[3]);
        int times = Integer.parseInt(arguments[4]);
        int hold = milliseconds(arguments[5]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            arguments[0], timeout, CONNECT_MS, new RetryForever(PAUSE_MS));
        client.start();
        for (int turn = 0; turn < times && !isToldToGo(0); turn++) {
            lead(client, arguments[1], arguments[2], hold);
        }
        client.close();
        say("gone");
    }

    private void lead(CuratorFramework client, String path, String id, int hold) throws Exception {
        AtomicBoolean leads = new AtomicBoolean();
        // Whoever leads stops before it leaves; and at once when its session is in doubt, which only the listener tells.
        Runnable over = () -> {
            if (leads.compareAndSet(true, false)) {
                say("over");
            }
        };
        try (LeaderLatch latch = new LeaderLatch(client, path, id)) {
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    leads.set(true);
                    say("leads");
                }

                @Override
                public void notLeader() {
                    over.run();
                }
            });
            latch.start();
            while (latch.getOurPath() == null && !isToldToGo(PAUSE_MS)) {
                // It is being made.
            }
            System.out.println("leader " + latch.getLeader().getId());
            say("stands");
            while (!latch.await(PAUSE_MS, TimeUnit.MILLISECONDS) && !isToldToGo(0)) {
                // Others lead.
            }
            isToldToGo(hold);
            over.run();
        }
    }

    private boolean isToldToGo(long within) throws InterruptedException {
        return toldToGo.await(within, TimeUnit.MILLISECONDS);
    }

    private static int milliseconds(String seconds) {
        return (int) (1_000 * Double.parseDouble(seconds));
    }

    private static void say(String what) {
        System.out.println(what + " " + System.nanoTime());
        System.out.flush();
    }
}
