"""Typed verdicts: replies of models, what denies a property, one verdict of several sections, the count."""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.verdicts import (
    MAX_QUOTE_CHARS,
    RESPONSE_FORMAT,
    DocumentVerdict,
    Tally,
    Verdict,
    combine,
    denies,
    parse_reply,
    sentence,
    tally,
)

YES, NO, SILENT = Verdict.YES, Verdict.NO, Verdict.SILENT
Row = tuple[str, str, str, bool]  # sentence, property, language, denied?

#: The rules were written looking at these.
TUNED: list[Row] = [
    ("The appointment under this Agreement shall not be exclusive.", "exclusivity clause", "en", True),
    ("Distributor is appointed on a non-exclusive basis.", "exclusivity clause", "en", True),
    ("This Agreement does not contain an exclusivity obligation.", "exclusivity clause", "en", True),
    ("There is no exclusivity obligation on either party.", "exclusivity clause", "en", True),
    ("Nothing in this Agreement creates any exclusivity.", "exclusivity clause", "en", True),
    ("Supplier grants Customer the exclusive right to sell the Products.", "exclusivity clause", "en", False),
    ("Supplier shall not disclose the terms of the exclusivity clause.", "exclusivity clause", "en", False),
    (
        "Supplier shall not sell to any other person, and this exclusivity survives termination.",
        "exclusivity",
        "en",
        False,
    ),
    ("Consent to assignment shall not be unreasonably withheld.", "consent to assignment", "en", False),
    ("Nothing in this clause shall limit the exclusivity granted to Customer.", "exclusivity clause", "en", False),
    ("Neither party waives nor excludes its audit rights.", "audit right", "en", False),
    ("Neither exclusivity nor a minimum purchase is agreed.", "exclusivity clause", "en", True),
    ("The Customer waives any right to audit.", "audit right", "en", True),
    ("Liability for indirect damages is excluded.", "liability for indirect damages", "en", True),
    ("In no event shall the Supplier's liability exceed EUR 100,000.", "cap on liability", "en", False),
    ("Without prejudice to the exclusivity in clause 3, either party may terminate.", "exclusivity", "en", False),
    ("The Supplier may not terminate, but the Customer has an exclusivity for two years.", "exclusivity", "en", False),
    ("The lease may be renewed without a rent review.", "rent review", "en", True),
    ("No failure to exercise the audit right shall be a waiver.", "audit right", "en", False),
    ("The Agreement is exclusive and not transferable.", "exclusivity clause", "en", False),
    ("The licence is not exclusive, not transferable.", "exclusive licence", "en", True),
    ("Employee shall not compete with the Company for one year.", "non-compete clause", "en", False),
    ("This agreement contains no non-compete clause.", "non-compete clause", "en", True),
    ("El presente contrato no tendrá carácter exclusivo.", "cláusula de exclusividad", "es", True),
    ("El contrato se celebra sin exclusividad.", "cláusula de exclusividad", "es", True),
    ("No existe pacto de exclusividad entre las partes.", "cláusula de exclusividad", "es", True),
    ("El Distribuidor tendrá la exclusividad en España.", "cláusula de exclusividad", "es", False),
    ("El Proveedor no podrá ceder el contrato, y la exclusividad se mantendrá.", "exclusividad", "es", False),
    ("Sin perjuicio de la exclusividad pactada, las partes podrán resolver el contrato.", "exclusividad", "es", False),
    ("La garantía queda excluida.", "garantía", "es", True),
    ("El arrendatario no podrá revelar el pacto de exclusividad.", "exclusividad", "es", False),
    ("Aquest contracte no té caràcter exclusiu.", "clàusula d'exclusivitat", "ca", True),
    ("Les parts treballen sense exclusivitat.", "clàusula d'exclusivitat", "ca", True),
    ("No s'estableix cap exclusivitat.", "clàusula d'exclusivitat", "ca", True),
    ("El distribuïdor té l'exclusiva a Andorra.", "clàusula d'exclusivitat", "ca", False),
    ("Sens perjudici de l'exclusivitat pactada, el contracte es pot resoldre.", "exclusivitat", "ca", False),
    ("No hi ha període de prova.", "període de prova", "ca", True),
]

#: Written before the rules and run once when those above were right: 41 of 42.
HELD_OUT: list[Row] = [
    ("The parties acknowledge that this relationship is nonexclusive.", "exclusivity clause", "en", True),
    ("Customer is under no obligation to purchase exclusively from Supplier.", "exclusivity", "en", True),
    ("Supplier does not grant Customer any exclusive rights in the Territory.", "exclusivity", "en", True),
    ("The foregoing shall not be construed as an exclusive appointment.", "exclusivity", "en", True),
    (
        "Licensee has the exclusive licence, which shall not be revoked during the Term.",
        "exclusive licence",
        "en",
        False,
    ),
    (
        "Reseller shall not, without consent, promote other goods in breach of the exclusivity set out in clause 4.",
        "exclusivity",
        "en",
        False,
    ),
    ("There shall be no renewal of this Lease.", "renewal", "en", True),
    ("This Agreement renews automatically unless a party does not wish to continue.", "automatic renewal", "en", False),
    ("The tenant is not required to pay a deposit.", "deposit", "en", True),
    ("A deposit of two months' rent is payable and shall not bear interest.", "deposit", "en", False),
    ("The deposit cannot be used for repairs.", "deposit", "en", False),
    ("The warranties are not limited in time.", "warranties", "en", False),
    ("Seller disclaims all warranties.", "warranty", "en", True),
    ("All warranties are hereby disclaimed.", "warranty", "en", True),
    ("Neither party shall be liable for consequential loss.", "liability for consequential loss", "en", True),
    ("No party may terminate the exclusivity before 2027.", "exclusivity", "en", False),
    ("The Agreement lacks a confidentiality undertaking.", "confidentiality", "en", True),
    ("The Contractor is not entitled to an advance payment.", "advance payment", "en", True),
    ("The Supplier shall provide insurance; no notice is needed.", "insurance", "en", False),
    ("Payment is due in 30 days and not later.", "payment in 30 days", "en", False),
    ("Nothing herein shall be deemed to limit the arbitration agreement.", "arbitration", "en", False),
    ("Disputes shall not be submitted to arbitration.", "arbitration", "en", True),
    ("The parties exclude the application of the CISG.", "application of the CISG", "en", True),
    ("Employment is subject to no probation period.", "probation period", "en", True),
    ("Ninguna de las partes gozará de exclusividad.", "exclusividad", "es", True),
    ("No se concede al agente exclusividad alguna sobre la zona.", "exclusividad", "es", True),
    ("La licencia es no exclusiva.", "exclusividad", "es", True),
    ("Las partes renuncian al arbitraje.", "arbitraje", "es", True),
    ("El arrendador no entregará las llaves hasta que se pague la fianza.", "fianza", "es", False),
    ("No habrá prórroga automática.", "prórroga automática", "es", True),
    ("El plazo de garantía no será inferior a dos años.", "garantía", "es", False),
    ("El contrato carece de cláusula penal.", "cláusula penal", "es", True),
    ("La exclusividad no podrá ser modificada.", "exclusividad", "es", False),
    ("Ni el precio ni la exclusividad se verán afectados.", "exclusividad", "es", False),
    ("El contracte no inclou cap clàusula de confidencialitat.", "clàusula de confidencialitat", "ca", True),
    ("La llicència no és exclusiva.", "exclusivitat", "ca", True),
    ("L'arrendatari no pot cedir el contracte ni revelar la clàusula d'exclusivitat.", "exclusivitat", "ca", False),
    ("Queda exclosa la responsabilitat per danys indirectes.", "responsabilitat per danys indirectes", "ca", True),
    ("Ni l'arrendador ni l'arrendatari tindran dret de pròrroga.", "pròrroga", "ca", True),
    ("El dipòsit no es retornarà abans de trenta dies.", "dipòsit", "ca", False),
    ("El personal no haurà de passar cap període de prova.", "període de prova", "ca", True),
    ("Cap de les parts pot rescindir el contracte mentre duri l'exclusivitat.", "exclusivitat", "ca", False),
]

#: Written after the rules worked for the others, to find what they miss: 35 of 38 at first sight.
SECOND: list[Row] = [
    (
        "The Consultant is free to work for others; nothing in this Agreement makes the engagement exclusive.",
        "exclusivity",
        "en",
        True,
    ),
    (
        "The right granted hereunder is exclusive, even as to Licensor, and may not be sublicensed.",
        "exclusivity",
        "en",
        False,
    ),
    ("No warranty, express or implied, is given by the Seller.", "warranty", "en", True),
    ("The warranty does not cover normal wear and tear.", "warranty", "en", False),
    ("The Products are sold as is and without warranty of any kind.", "warranty", "en", True),
    ("The Licensor never grants audit rights to third parties.", "audit right", "en", True),
    ("Customer shall keep records and shall not refuse an audit.", "audit right", "en", False),
    ("This lease contains neither a break clause nor an option to renew.", "break clause", "en", True),
    ("The tenant may not exercise the break clause before year three.", "break clause", "en", False),
    ("The break clause is hereby deleted and shall have no effect.", "break clause", "en", True),
    (
        "Either party may terminate for convenience on 30 days' notice, but not during the first year.",
        "termination for convenience",
        "en",
        False,
    ),
    ("Neither party may terminate this Agreement for convenience.", "termination for convenience", "en", True),
    ("The Supplier isn't obliged to maintain insurance.", "insurance", "en", True),
    ("Insurance shall be maintained without interruption.", "insurance", "en", False),
    (
        "The parties shall not be bound by any confidentiality obligation after termination.",
        "confidentiality",
        "en",
        True,
    ),
    ("Confidential information shall not be disclosed to anyone.", "confidentiality", "en", False),
    ("No confidential information shall be disclosed.", "confidentiality", "en", False),
    ("The Contractor is not an employee of the Company.", "employment relationship", "en", True),
    ("The agreement does not renew automatically.", "automatic renewal", "en", True),
    ("Interest is payable, but no penalty.", "penalty", "en", True),
    ("A penalty is due if the goods are not delivered on time.", "penalty", "en", False),
    ("El presente contrato no se prorrogará automáticamente.", "prórroga automática", "es", True),
    ("El contrato se prorrogará salvo que una parte no lo desee.", "prórroga", "es", False),
    ("Queda prohibido el subarriendo.", "subarriendo", "es", True),
    ("El subarriendo no está permitido.", "subarriendo", "es", True),
    ("No se exigirá fianza alguna al arrendatario.", "fianza", "es", True),
    ("La fianza no devengará intereses.", "fianza", "es", False),
    ("El trabajador tendrá derecho a teletrabajar, sin necesidad de autorización.", "teletrabajo", "es", False),
    ("Las partes no quedan sujetas a arbitraje.", "arbitraje", "es", True),
    ("El seguro no podrá cancelarse sin preaviso.", "seguro", "es", False),
    ("El subarrendament no és permès.", "subarrendament", "ca", True),
    ("L'arrendatari no pot subarrendar l'habitatge.", "subarrendament", "ca", True),
    ("No s'exigeix fiança.", "fiança", "ca", True),
    ("La fiança no pot superar tres mensualitats.", "fiança", "ca", False),
    ("El contracte es prorroga si cap de les parts no hi renuncia.", "pròrroga", "ca", False),
    ("Les parts renuncien a l'arbitratge.", "arbitratge", "ca", True),
    ("L'assegurança és obligatòria i no admet franquícia.", "assegurança", "ca", False),
    ("Aquest acord no crea cap relació laboral.", "relació laboral", "ca", True),
]


@pytest.mark.parametrize(("text", "about", "language", "denied"), TUNED)
def test_what_a_sentence_denies(text: str, about: str, language: str, denied: bool) -> None:
    assert denies(text, about, language) is denied


@pytest.mark.parametrize("rows", [HELD_OUT, SECOND], ids=["held_out", "second"])
def test_nearly_all_sentences_that_the_rules_were_not_written_for(rows: list[Row]) -> None:
    wrong = [text for text, about, language, denied in rows if denies(text, about, language) is not denied]
    assert len(wrong) <= 0.05 * len(rows), wrong


@pytest.mark.parametrize(
    ("text", "about", "language", "denied"),
    [
        # A ban or limit is denied by saying that there is none, not by forbidding.
        ("The Supplier may not assign.", "do not allow assignment", "en", False),
        ("Assignment is not prohibited.", "prohibition of assignment", "en", True),
        ("Se prohíbe la cesión.", "se prohíbe la cesión", "es", False),
        ("No se prohíbe la cesión.", "se prohíbe la cesión", "es", True),
        ("There is no cap on liability.", "cap on liability", "en", True),
        ("The Supplier's liability is unlimited.", "cap on liability", "en", True),
        ("La responsabilitat no superarà 10.000 euros.", "límit de responsabilitat", "ca", False),
        ("Nothing in this Agreement limits liability for death.", "limitation of liability", "en", False),
        ("Damages including, without limitation, any liability.", "limitation of liability", "en", False),
        ("Losses, including but not limited to liability.", "limitation of liability", "en", False),
        # Of another language: cognates alone tell.
        ("Aquest contracte no és exclusiu.", "exclusivity clause", "ca", True),
        ("No hay límite de responsabilidad.", "cap on liability", "es", True),
        ("In no event shall liability exceed the fees.", "liability", "en", False),
        ("It is not only exclusive but perpetual.", "exclusivity", "en", False),
        # Reach: through what carries the property, not through other matters.
        ("There is no obligation of a party under any term or condition of exclusivity.", "exclusivity", "en", True),
        ("He may not sell, lend, hire out or give away goods bought on exclusive terms.", "exclusivity", "en", False),
        ("Without a deposit there will be exclusivity.", "exclusivity", "en", False),
        ("The exclusivity ended without being granted again.", "exclusivity", "en", False),
        ("No se reconoce al socio indemnización alguna.", "indemnización", "es", True),
        ("Liability is not excluded.", "exclusivity", "en", False),
        # Both said: it is there.
        ("An exclusive licence for Spain and a non-exclusive licence elsewhere.", "exclusive licence", "en", False),
        ("The exclusivity shall not apply to online sales.", "exclusivity", "en", False),
        ("The exclusivity shall not apply.", "exclusivity", "en", True),
        ("This letter is not governed by the laws of any State.", "governed by the laws of a state", "en", True),
        ("There is no clause.", "clause", "en", True),
        ("It is not raining.", "exclusivity clause", "en", False),
        ("", "exclusivity clause", "en", False),
        ("No exclusivity.", "", "en", False),
        ("Keine Exklusivität.", "exclusivity", "de", False),
    ],
)
def test_bans_limits_cognates_and_nothing(text: str, about: str, language: str, denied: bool) -> None:
    assert denies(text, about, language) is denied


@given(st.text(max_size=120), st.text(max_size=40), st.sampled_from(["en", "es-ES", "ca", "de", ""]))
def test_reads_anything(text: str, about: str, language: str) -> None:
    assert denies(text, about, language) in {True, False}


@given(st.sampled_from([row for row in TUNED if row[3]]))
def test_a_sentence_without_its_negation_does_not_deny(row: Row) -> None:
    _, about, language, _ = row
    assert denies(about, about, language) is False


# --- replies ----------------------------------------------------------------------------------------------------------

REPLY = '{"verdict": "yes", "quote": "the exclusive right"}'


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        f"```json\n{REPLY}\n```",
        f"The answer is: {REPLY} as {{you}} see.",
        f"{{ not json }} {REPLY}",
        f"{REPLY}\n{REPLY}",
        '{"quote": "the exclusive right", "verdict": " YES "}',
        f'{{"thought": "none"}} {REPLY}',
    ],
)
def test_a_reply_is_found_among_other_text(text: str) -> None:
    assert parse_reply(text) == (YES, "the exclusive right")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "{}",
        "[]",
        "{" * 5000,
        '{"a":' * 5000,
        '{"verdict": "yes"}',
        '{"verdict": "maybe", "quote": ""}',
        '{"verdict": "yes", "quote": null}',
        '{"verdict": true, "quote": ""}',
        '{"verdict": ["yes"], "quote": ""}',
        '{"verdict": "yes", "quote": "a", "page": 3}',
        '{"verdict": "yes", "verdict": "no", "quote": "a"}',
        '{"answer": {"verdict": "yes", "quote": "a"}}',
        '{"verdict": "yes", "quote": "a"} {"verdict": "no", "quote": "b"}',
        '{"verdict": "yes", "quote": "a\\u0000b"}',
        '{"verdict": "yes", "quote": "\\ud800"}',
        '{"verdict": "yes", "quote": "cut o',
    ],
)
def test_what_is_no_reply(text: str) -> None:
    assert parse_reply(text) is None


def test_a_long_quote_is_refused_not_cut() -> None:
    assert parse_reply(json.dumps({"verdict": "yes", "quote": "x" * MAX_QUOTE_CHARS})) == (YES, "x" * MAX_QUOTE_CHARS)
    assert parse_reply(json.dumps({"verdict": "yes", "quote": "x" * (MAX_QUOTE_CHARS + 1)})) is None


@given(st.sampled_from(Verdict), st.text(max_size=80).filter(lambda q: "\x00" not in q), st.text(max_size=40))
def test_every_reply_of_the_schema_is_read(verdict: Verdict, quote: str, around: str) -> None:
    plain = around.replace("{", "(")
    assert parse_reply(f"{plain}{json.dumps({'verdict': verdict, 'quote': quote})}{plain}") == (verdict, quote)


def test_the_schema_asks_for_what_is_read() -> None:
    schema = RESPONSE_FORMAT["json_schema"]["schema"]
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"]) == {"verdict", "quote"}
    assert schema["properties"]["verdict"]["enum"] == ["yes", "no", "silent"]
    assert RESPONSE_FORMAT["type"] == "json_schema"


# --- counting ---------------------------------------------------------------------------------------------------------


def verdict(said: Verdict, proved: bool) -> DocumentVerdict:
    return DocumentVerdict("id", "a.pdf", "version", said, proved)


def test_only_what_is_proved_is_counted() -> None:
    asked = [(YES, True), (YES, False), (NO, True), (NO, False), (SILENT, True), (SILENT, False)]
    assert tally([verdict(said, proved) for said, proved in asked]) == Tally(yes=1, no=1, silent=2, unproved=2)


@pytest.mark.parametrize(
    ("counted", "noun", "negated", "text"),
    [
        (
            Tally(5, 2, 5, 0),
            "documents",
            False,
            "5 of 12 documents: yes, with a quote. No: 7 (2 say the opposite, 5 say nothing).",
        ),
        (
            Tally(5, 2, 5, 3),
            "",
            False,
            (
                "5 of 15 documents: yes, with a quote. No: 7 (2 say the opposite, 5 say nothing)."
                " Not proved, so not counted: 3."
            ),
        ),
        (
            Tally(0, 1, 0, 0),
            "supply agreements",
            False,
            (
                "0 of 1 document: yes, with a quote. No: 1 (1 says the opposite, 0 say nothing)."
                ' Every document was asked, not only "supply agreements".'
            ),
        ),
        (
            Tally(5, 2, 5, 0),
            "documentos",
            True,
            "7 of 12 documents without it (2 say the opposite, 5 say nothing). With it: 5, each with a quote.",
        ),
        (Tally(), "", False, "0 of 0 documents: yes, with a quote. No: 0 (0 say the opposite, 0 say nothing)."),
    ],
)
def test_the_count_in_words(counted: Tally, noun: str, negated: bool, text: str) -> None:
    assert sentence(counted, noun, negated=negated) == text


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.booleans()), max_size=40))
def test_the_count_adds_up_to_the_documents(rows: list[tuple[Verdict, bool]]) -> None:
    counted = tally([verdict(said, proved) for said, proved in rows])
    assert counted.documents == len(rows)
    assert counted.yes == rows.count((YES, True))
    assert f" of {len(rows)} document" in sentence(counted, "contracts")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], SILENT),
        ([(SILENT, True), (SILENT, True)], SILENT),
        ([(SILENT, True), (YES, True), (NO, True)], YES),
        ([(YES, False), (NO, True)], NO),
        ([(YES, False), (NO, False), (SILENT, True)], YES),
        ([(NO, False), (SILENT, True)], NO),
    ],
)
def test_one_verdict_of_several_sections_whatever_their_order(
    parts: list[tuple[Verdict, bool]], expected: Verdict
) -> None:
    assert {combine(order) for order in permutations(parts)} == {expected}
