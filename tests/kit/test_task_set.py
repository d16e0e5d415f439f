import asyncio

from transom.kit.task_set import TaskSet


async def test_a_finished_task_leaves_the_set() -> None:
    tasks = TaskSet()

    async def answer() -> int:
        return 42

    assert await tasks.start(answer()) == 42
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_close_cancels_and_waits() -> None:
    tasks, ended = TaskSet(), []

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    for _ in range(2):
        tasks.start(run())
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == [True, True]


async def test_a_task_can_cancel_the_others_of_its_set() -> None:
    tasks = TaskSet()
    other = tasks.start(asyncio.sleep(3600))

    async def end() -> str:
        tasks.cancel_others()
        await tasks_cancelled(other)
        return "ended"

    assert await tasks.start(end()) == "ended"


async def tasks_cancelled(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_wait_ignores_errors() -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise ValueError("refused")

    tasks.start(fail())
    await tasks.wait()
