"""One suite for every Qdrant that the product may meet: the client's in-memory engine, the local server, a real server.

Scores are compared, not the order among equal scores. A real server takes part when QDRANT_URL is set (QDRANT_API_KEY).
"""

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from ingestion.index import IndexPoint, IndexRejected, Legs, SearchRequest, VectorIndex
from ingestion.sparse import SparseVector, encode_document, encode_query
from tests.support.vectors_server import DIMENSIONS, WORDS, LocalServer, assert_same_scores, make_points, new_id


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path_factory.mktemp("vectors"))
    yield server
    server.stop()


IMPLEMENTATIONS = ["memory", "local", "server"]


def _skip_without_server(implementation: str) -> None:
    if implementation == "server" and not os.environ.get("QDRANT_URL"):
        pytest.skip("QDRANT_URL is not set")


@pytest.fixture(params=IMPLEMENTATIONS)
def index(request: pytest.FixtureRequest) -> Iterator[VectorIndex]:
    """An empty, ensured index of each implementation."""
    _skip_without_server(request.param)
    name = f"contract-{uuid.uuid4().hex}"
    if request.param == "memory":
        found = VectorIndex.in_memory(name, DIMENSIONS)
    elif request.param == "local":
        found = request.getfixturevalue("shared_server").index(name)
    else:
        found = VectorIndex(os.environ["QDRANT_URL"], os.environ.get("QDRANT_API_KEY", ""), name, DIMENSIONS)
    found.ensure()
    yield found
    found.close()
    if request.param == "server":
        QdrantClient(os.environ["QDRANT_URL"], api_key=os.environ.get("QDRANT_API_KEY")).delete_collection(name)


@pytest.fixture(params=IMPLEMENTATIONS)
def client(request: pytest.FixtureRequest) -> Iterator[tuple[QdrantClient, str]]:
    """A plain client of each implementation and the name of a filled collection: 30 points, ids 1 to 30."""
    _skip_without_server(request.param)
    name = f"contract-{uuid.uuid4().hex}"
    if request.param == "memory":
        found = QdrantClient(":memory:")
    elif request.param == "local":
        found = request.getfixturevalue("shared_server").client()
    else:
        found = QdrantClient(
            os.environ["QDRANT_URL"],
            headers={"api-key": os.environ.get("QDRANT_API_KEY", "")},
            check_compatibility=False,
        )
    found.create_collection(
        name,
        {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)},
        {"sparse": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    draw = random.Random(7)
    found.upsert(
        name,
        [
            models.PointStruct(
                id=number,
                vector={
                    "dense": [draw.gauss(0, 1) for _ in range(4)],
                    "sparse": models.SparseVector(indices=[number % 5, 10 + number % 3], values=[1.0, 0.5]),
                },
                payload={
                    "kind": "even" if number % 2 == 0 else "odd",
                    "number": number,
                    "tags": ["a", f"t{number % 3}"],
                },
            )
            for number in range(1, 31)
        ],
        wait=True,
    )
    yield found, name
    found.delete_collection(name)


def test_scores_filters_and_counts_agree_with_the_reference(index: VectorIndex) -> None:
    reference = VectorIndex.in_memory("reference", DIMENSIONS)
    reference.ensure()
    tenants = [new_id(), new_id()]
    collections = [new_id(), new_id()]
    documents = [new_id() for _ in range(10)]
    for at, (tenant, collection) in enumerate((t, c) for t in tenants for c in collections):
        points = make_points(at, 120, tenant, collection, documents)
        for target in (index, reference):
            target.upsert(points)
    draw = random.Random(99)
    for number in range(12):
        question = " ".join(draw.choices(WORDS, k=3))
        request = SearchRequest(
            tenant_id=tenants[number % 2],
            collection_id=collections[number // 2 % 2],
            dense=[draw.gauss(0, 1) for _ in range(DIMENSIONS)],
            sparse=encode_query(question, ["en", "es"]),
            limit=15,
            document_ids=documents[:4] if number % 3 == 0 else None,
        )
        found, expected = index.search(request), reference.search(request)
        assert_same_scores(found.dense, expected.dense)
        assert_same_scores(found.sparse, expected.sparse)
        assert len(found.dense) == 15
        assert found.sparse
        if request.document_ids:
            assert {hit.document_id for hit in found.dense + found.sparse} <= set(documents[:4])
    for tenant in tenants:
        assert index.count(tenant) == reference.count(tenant) == 240
        assert index.count(tenant, collections[0]) == 120
        assert index.count(tenant, collections[0], documents[0]) == 12
        assert index.count(tenant, version_id=documents[3]) == 24
    assert index.count(new_id()) == 0


def test_bm25_finds_the_words_of_the_question_first(index: VectorIndex) -> None:
    tenant, collection, document = new_id(), new_id(), new_id()
    texts = [
        "Either party may terminate this agreement on sixty days' written notice.",
        "The supplier shall keep insurance of at least $5,120 under clause 12.3(b).",
        "Invoices are payable within thirty days of receipt.",
    ]
    ids = [new_id() for _ in texts]
    index.upsert(
        [
            IndexPoint(i, [1.0] * DIMENSIONS, encode_document(text, "en"), tenant, collection, document, document)
            for i, text in zip(ids, texts, strict=True)
        ]
    )

    def first(question: str) -> str:
        request = SearchRequest(tenant, collection, None, encode_query(question, ["en", "es", "ca"]), 3)
        return index.search(request).sparse[0].id

    assert first("What is the notice period for terminating?") == ids[0]
    assert first("How much is $5,120 for?") == ids[1]
    assert first("What does clause 12.3 say?") == ids[1]
    assert first("When must an invoice be paid?") == ids[2]


def test_a_tenant_never_sees_another_tenants_points(index: VectorIndex) -> None:
    collection, document = new_id(), new_id()
    mine, theirs = new_id(), new_id()
    index.upsert(make_points(1, 20, mine, collection, [document]))
    index.upsert(make_points(2, 20, theirs, collection, [document]))
    query = encode_query(" ".join(WORDS), ["en"])
    found = index.search(SearchRequest(mine, collection, [1.0] * DIMENSIONS, query, 100))
    own = index.ids(mine, document)
    assert len(own) == 20
    assert {hit.id for hit in found.dense} == own
    assert {hit.id for hit in found.sparse} <= own
    index.delete_versions(mine, [document])
    index.delete_documents(mine, [document])
    index.delete_collection(mine, collection)
    assert index.count(mine) == 0
    assert index.count(theirs) == 20


def test_another_tenants_upload_leaves_scores_equal_to_the_last_bit(index: VectorIndex) -> None:
    collection, ours, theirs = new_id(), new_id(), new_id()
    index.upsert(make_points(3, 40, ours, collection, [new_id()]))
    request = SearchRequest(ours, collection, [0.5] * DIMENSIONS, encode_query("liability cap", ["en"]), 40)
    before = index.search(request)
    assert before.sparse
    # the same word everywhere, then nowhere: the global document frequency moves both ways
    everywhere = make_points(4, 200, theirs, collection, [new_id()])
    index.upsert(everywhere)
    other_collection = make_points(5, 50, ours, new_id(), [new_id()])
    index.upsert(other_collection)
    assert index.search(request) == before
    index.delete_collection(theirs, collection)
    assert index.search(request) == before


def test_upsert_replaces_a_point_of_the_same_id(index: VectorIndex) -> None:
    tenant, collection, old, new = new_id(), new_id(), new_id(), new_id()
    point = make_points(6, 1, tenant, collection, [old])[0]
    index.upsert([point])
    changed = IndexPoint(
        point.id, [-x for x in point.dense], encode_document("zebra", "en"), tenant, collection, old, new
    )
    index.upsert([changed])
    index.upsert([changed])
    assert index.count(tenant) == 1
    found = index.search(SearchRequest(tenant, collection, point.dense, encode_query("zebra", ["en"]), 5))
    assert [hit.score for hit in found.dense] == pytest.approx([-1.0])
    assert [(hit.id, hit.version_id) for hit in found.sparse] == [(point.id, new)]
    assert index.search(SearchRequest(tenant, collection, None, encode_query("notice", ["en"]), 5)) == Legs([], [])


def test_deletes_take_exactly_what_they_name(index: VectorIndex) -> None:
    tenant, collections, documents = new_id(), [new_id(), new_id()], [new_id() for _ in range(4)]
    for at, collection in enumerate(collections):
        index.upsert(make_points(10 + at, 40, tenant, collection, documents))
    assert index.count(tenant) == 80
    index.delete_versions(tenant, [documents[0], new_id()])
    assert index.count(tenant) == 60
    assert index.ids(tenant, documents[0]) == set()
    index.delete_documents(tenant, [documents[1]])
    assert index.count(tenant) == 40
    index.delete_collection(tenant, collections[0])
    assert index.count(tenant) == index.count(tenant, collections[1]) == 20
    everything = SearchRequest(tenant, collections[1], [1.0] * DIMENSIONS, encode_query(" ".join(WORDS), ["en"]), 100)
    found = index.search(everything)
    assert {hit.document_id for hit in found.dense + found.sparse} == set(documents[2:])
    index.delete_versions(tenant, [])
    assert index.count(tenant) == 20


def test_ids_reads_past_one_page(index: VectorIndex) -> None:
    tenant, collection, document = new_id(), new_id(), new_id()
    points = make_points(20, 2300, tenant, collection, [document])
    index.upsert(points)
    assert index.ids(tenant, document) == {point.id for point in points}


def test_legs_that_are_not_asked_for_are_empty(index: VectorIndex) -> None:
    tenant, collection, document = new_id(), new_id(), new_id()
    index.upsert(make_points(21, 5, tenant, collection, [document]))
    index.upsert(
        [IndexPoint(new_id(), [1.0] * DIMENSIONS, SparseVector((), ()), tenant, collection, document, document)]
    )
    dense, sparse = [1.0] * DIMENSIONS, encode_query("notice", ["en"])
    only_dense = index.search(SearchRequest(tenant, collection, dense, SparseVector((), ()), 10))
    assert (len(only_dense.dense), only_dense.sparse) == (6, [])
    only_sparse = index.search(SearchRequest(tenant, collection, None, sparse, 10))
    assert only_sparse.dense == []
    assert index.search(SearchRequest(tenant, collection, None, None, 10)) == Legs([], [])
    assert index.search(SearchRequest(tenant, collection, dense, sparse, 10, document_ids=[])) == Legs([], [])
    assert index.search(SearchRequest(tenant, new_id(), dense, sparse, 10)) == Legs([], [])


def test_ids_are_compared_by_value_not_by_spelling(index: VectorIndex) -> None:
    tenant, collection, document = new_id(), new_id(), new_id()
    index.upsert(make_points(22, 3, tenant.upper(), collection, [document]))
    assert index.count(tenant, collection.upper()) == 3


def test_wrong_input_is_rejected_and_changes_nothing(index: VectorIndex) -> None:
    tenant, collection, document = new_id(), new_id(), new_id()
    good = make_points(23, 2, tenant, collection, [document])
    short = IndexPoint(new_id(), [1.0], good[0].sparse, tenant, collection, document, document)
    with pytest.raises(IndexRejected):
        index.upsert([*good, short])
    with pytest.raises(IndexRejected):
        index.upsert([IndexPoint("no-uuid", good[0].dense, good[0].sparse, tenant, collection, document, document)])
    with pytest.raises(IndexRejected):
        index.search(SearchRequest(tenant, collection, [1.0], None, 5))
    with pytest.raises(IndexRejected):
        index.search(SearchRequest(tenant, collection, [1.0] * DIMENSIONS, None, 0))
    with pytest.raises(IndexRejected):
        index.search(SearchRequest("' OR 1=1", collection, [1.0] * DIMENSIONS, None, 5))
    assert index.count(tenant) == 0


def test_ensure_repeats_and_ready_says_whether_it_was_done(index: VectorIndex) -> None:
    assert index.ready()
    index.ensure()
    absent = VectorIndex.in_memory("absent", DIMENSIONS)
    assert not absent.ready()


# The client's own API: what neighbours of the product (scripts, notebooks) use.


def scores_of(points: list[models.ScoredPoint]) -> list[float]:
    return [point.score for point in points]


def test_fusion_over_prefetches(client: tuple[QdrantClient, str]) -> None:
    found, name = client
    prefetch = [
        models.Prefetch(query=[1.0, 0.0, 0.0, 0.0], using="dense", limit=10),
        models.Prefetch(query=models.SparseVector(indices=[1, 11], values=[1.0, 1.0]), using="sparse", limit=10),
    ]
    for fusion in (models.Fusion.RRF, models.Fusion.DBSF):
        points = found.query_points(name, prefetch=prefetch, query=models.FusionQuery(fusion=fusion), limit=8).points
        assert len(points) == 8
        assert scores_of(points) == sorted(scores_of(points), reverse=True)
        assert len({point.id for point in points}) == 8
    # ranks 1 and 1: the best of both legs is 1/2 + 1/2 with Qdrant's k of 2
    both = [models.Prefetch(query=[1.0, 0.0, 0.0, 0.0], using="dense", limit=3)] * 2
    points = found.query_points(name, prefetch=both, query=models.FusionQuery(fusion=models.Fusion.RRF), limit=3).points
    assert scores_of(points) == pytest.approx([1.0, 2 / 3, 0.5])


def test_filters_select_what_they_say(client: tuple[QdrantClient, str]) -> None:
    found, name = client

    def numbers(where: models.Filter) -> set[int]:
        records, _ = found.scroll(name, where, limit=100, with_payload=["number"])
        assert len(records) == found.count(name, where, exact=True).count
        return {record.payload["number"] for record in records if record.payload}

    def field(key: str, **kind: object) -> models.FieldCondition:
        return models.FieldCondition.model_validate({"key": key, **kind})

    even = field("kind", match={"value": "even"})
    assert numbers(models.Filter(must=[even])) == set(range(2, 31, 2))
    assert numbers(models.Filter(must_not=[even])) == set(range(1, 31, 2))
    assert numbers(models.Filter(must=[even, field("number", range={"gt": 3, "lte": 8})])) == {4, 6, 8}
    assert numbers(
        models.Filter(should=[field("number", match={"any": [5, 7]}), field("tags", match={"value": "t0"})])
    ) == {
        5,
        7,
        *range(3, 31, 3),
    }
    assert numbers(models.Filter(must=[models.HasIdCondition(has_id=[3, 4, 99])])) == {3, 4}
    nested = models.Filter(
        must=[models.Filter(should=[field("number", match={"value": 1}), even])],
        must_not=[field("number", range={"gt": 6})],
    )
    assert numbers(nested) == {1, 2, 4, 6}
    assert numbers(models.Filter(must=[field("number", match={"except": list(range(1, 29))})])) == {29, 30}


def test_scroll_pages_and_retrieve(client: tuple[QdrantClient, str]) -> None:
    found, name = client
    seen: list[int] = []
    offset = None
    while True:
        records, offset = found.scroll(name, limit=7, offset=offset, with_payload=False)
        seen.extend(int(record.id) for record in records)
        if offset is None:
            break
    assert seen == list(range(1, 31))
    records = found.retrieve(name, [4, 77], with_payload=True, with_vectors=True)
    assert [record.id for record in records] == [4]
    assert records[0].payload == {"kind": "even", "number": 4, "tags": ["a", "t1"]}
    vector = records[0].vector
    assert isinstance(vector, dict)
    assert vector["sparse"] == models.SparseVector(indices=[4, 11], values=[1.0, 0.5])
    dense = vector["dense"]
    assert isinstance(dense, list)
    assert sum(x * x for x in dense if isinstance(x, float)) == pytest.approx(1.0, rel=1e-5)


def test_query_takes_threshold_offset_and_selectors(client: tuple[QdrantClient, str]) -> None:
    found, name = client
    query = [0.3, -1.0, 0.2, 0.9]
    every = found.query_points(name, query, using="dense", limit=30).points
    assert len(every) == 30
    page = found.query_points(name, query, using="dense", limit=5, offset=5, with_payload=["number"]).points
    assert scores_of(page) == pytest.approx(scores_of(every[5:10]))
    assert all(set(point.payload or {}) == {"number"} for point in page)
    threshold = (every[9].score + every[10].score) / 2
    assert len(found.query_points(name, query, using="dense", limit=30, score_threshold=threshold).points) == 10


def test_deletes_by_id_and_collections_by_name(client: tuple[QdrantClient, str]) -> None:
    found, name = client
    assert name in {collection.name for collection in found.get_collections().collections}
    info = found.get_collection(name)
    assert info.points_count == 30
    assert isinstance(info.config.params.vectors, dict)
    assert info.config.params.vectors["dense"].size == 4
    found.delete(name, models.PointIdsList(points=[1, 2, 99]), wait=True)
    assert found.count(name).count == 28
    assert found.get_collection(name).points_count == 28
    assert not found.collection_exists(name + "-other")
    with pytest.raises((UnexpectedResponse, ValueError)):
        found.count(name + "-other")
    with pytest.raises((UnexpectedResponse, ValueError)):
        found.create_collection(name, {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)})


def test_threads_that_use_the_library_first_do_not_deadlock() -> None:
    code = """
import threading
from ingestion import index
names = [("models", "Filter"), ("exceptions", "UnexpectedResponse"), ("client_exceptions", "ResourceExhaustedResponse")]
failed = []
barrier = threading.Barrier(6)
def use(number):
    barrier.wait()
    try:
        module, name = names[number % 3]
        getattr(getattr(index, module), name)
        index.VectorIndex.in_memory()
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=use, args=(n,)) for n in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed, failed
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
